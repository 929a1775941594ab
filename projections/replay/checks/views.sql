-- The history of a log as views. Each is made of `events` (a row is an event; docs/replay.md has its columns) and of
-- the views above it. "Before" an event means by the events at lower offsets of the same log partition.
--
-- The state of one topic never depends on another topic. So every view can be computed for some of the shards alone, as
-- long as it finds `cluster_spans` and `log_ends`, which come from the whole log.

create or replace macro forever() as 9223372036854775807;

-- Broker ids as people write them: [1,2]; none for null.
create or replace macro listed(ids) as coalesce('[' || array_to_string(ids, ',') || ']', 'none');

-- A number or a text as people write it: none for null.
create or replace macro shown(one) as coalesce(one::varchar, 'none');

-- The members of a list that another list does not have.
create or replace macro others(ids, without) as list_filter(ids, lambda id: not list_contains(without, id));

-- True if another list has all members of a list. (DuckDB's list_has_all takes ten times as long.)
create or replace macro within(ids, whole) as len(others(ids, whole)) = 0;

-- True if a list has a member twice.
create or replace macro has_twice(ids) as
  len(list_filter(ids, lambda id, place: list_position(ids, id) <> place)) > 0;

-- All replicas of a list of partitions.
create or replace macro replicas_of(partitions) as flatten(list_transform(partitions, lambda one: one.replicas));

-- The members of a list without placeholders (below 0) that another list does not have.
create or replace macro placed_outside(ids, brokers) as list_filter(others(ids, brokers), lambda id: id >= 0);

-- True if a type of event is of a broker, begins a topic, or ends a topic under a shard key.
create or replace macro of_a_broker(type) as
  type in ('BrokerRegistered', 'BrokerFenced', 'BrokerLeaving', 'BrokerUnfenced', 'BrokerUnregistered',
           'LogDirsChanged');
create or replace macro begins_topic(type) as type in ('TopicCreated', 'TopicDiscovered');
create or replace macro ends_topic(type) as type in ('TopicDeleted', 'TopicVanished', 'CreationRefused');

-- ---- the cluster

-- broker_spans: a row is a range of offsets, after `since` up to `until`, in which the status of one broker does not
-- change. `type` is the event at `since`. A broker is live if it is unfenced and not shutting down, and `usable` if new
-- replicas may be placed on it (KIP-1066).
create view broker_spans as
select *, live and not cordoned as usable, live <> lag(live, 1, false) over one_broker as live_changed,
       not cordoned and lag(cordoned, 1, false) over one_broker as uncordoned
from (
  select log_partition, broker_id, "offset" as since, at_ms as since_ms, type, broker_epoch, external,
         lead("offset", 1, forever()) over one_broker as until,
         coalesce(last_value(case when type <> 'LogDirsChanged' then type <> 'BrokerUnregistered' end ignore nulls)
                    over up_to, false) as registered,
         coalesce(last_value(case when type <> 'LogDirsChanged' then type = 'BrokerUnfenced' end ignore nulls)
                    over up_to, false) as live,
         coalesce(last_value(case when type = 'LogDirsChanged' then cordoned
                                  when type in ('BrokerRegistered', 'BrokerUnregistered') then false end ignore nulls)
                    over up_to, false) as cordoned
  from events
  where of_a_broker(type)
  window one_broker as (partition by log_partition, broker_id order by "offset"),
         up_to as (partition by log_partition, broker_id order by "offset"
                   rows between unbounded preceding and current row))
window one_broker as (partition by log_partition, broker_id order by since);

-- cluster_spans: a row is a range of offsets, after `since` up to `until`, in which no broker and no setting changes.
create view cluster_spans as
with changes as (
  select log_partition, "offset" as since, lead("offset", 1, forever()) over one_log as until,
         last_value(settings ignore nulls) over (partition by log_partition order by "offset"
                                                 rows between unbounded preceding and current row) as settings
  from events
  where of_a_broker(type) or type = 'SettingsChanged'
  window one_log as (partition by log_partition order by "offset")),
brokers as (select distinct log_partition, broker_id from broker_spans),
status as (
  select c.log_partition, c.since,
         list_sort(list(s.broker_id) filter (where s.live)) as live,
         list_sort(list(s.broker_id) filter (where s.usable)) as usable,
         list_sort(list(s.broker_id) filter (where s.registered)) as registered
  from changes c
  join brokers b on b.log_partition = c.log_partition
  asof join broker_spans s on s.log_partition = c.log_partition and s.broker_id = b.broker_id and s.since <= c.since
  group by all)
select c.log_partition, c.since, c.until,
       coalesce(status.live, []) as live, coalesce(status.usable, []) as usable,
       coalesce(status.registered, []) as registered,
       coalesce(settings['enable.under.replicated.topic.creation'] = 'true', false) as placeholders_allowed,
       coalesce(settings['has.target.cluster'] = 'true', false) as has_target_cluster,
       coalesce(try_cast(settings['min.insync.replicas'] as int), 1) as min_isr,
       coalesce(try_cast(settings['num.partitions'] as int), 1) as default_partitions,
       coalesce(try_cast(settings['default.replication.factor'] as int), 1) as default_factor
from changes c left join status using (log_partition, since);

-- offset_runs: a row is a range of offsets of a log partition, `first` to `last`, without a gap or a repetition.
create view offset_runs as
select log_partition, min("offset") as first, max("offset") as last, count(*) as events, max(at_ms) as end_ms,
       max(at_ms) filter (where reconciled) as reconciled_ms,
       coalesce(bool_or(type in ('QuorumEpochBegun', 'FeaturesChanged')), false) as kafka_brokers
from (select log_partition, "offset", at_ms, reconciled, type, "offset" - dense_rank() over one_log as gaps,
             row_number() over one_log - dense_rank() over one_log as repetitions
      from events window one_log as (partition by log_partition order by "offset"))
group by log_partition, gaps, repetitions;

-- log_extents: a row is a log partition, as far as it goes.
create view log_extents as
select log_partition, sum(events)::bigint as events, max(last) as end_offset, max(end_ms) as end_ms,
       max(reconciled_ms) as reconciled_ms, bool_or(kafka_brokers) as kafka_brokers
from offset_runs group by log_partition;

-- cluster_blocks: a row is a cluster span in a block of 128 offsets, so that the span of an event is found by
-- equality.
create view cluster_blocks as
select s.*, unnest(range(greatest(since, 0) // 128, least(until, greatest(since, end_offset)) // 128 + 1)) as block
from cluster_spans s join log_extents using (log_partition);

-- log_ends: a row is a log partition at its end. `settled` is true if the reconciler wrote nothing in the last
-- `settle_ms` (a variable). The lists have the brokers whose status did not change in that time either: those that
-- could fill placeholders, those that could lead; `may_lead` has all that might still lead.
create view log_ends as
with brokers as (
  select log_partition, broker_id, max_by(live, since) as live, max_by(usable, since) as usable,
         max(since_ms) filter (where live_changed) as live_changed_ms,
         max(since_ms) filter (where live_changed or uncordoned) as usable_ms
  from broker_spans group by all),
clusters as (
  select log_partition, bool_or(placeholders_allowed) as ever_allowed,
         max_by(has_target_cluster, since) as has_target_cluster
  from cluster_spans group by all),
of_brokers as (
  select log_partition,
         list(broker_id order by broker_id)
           filter (where usable and end_ms - usable_ms >= getvariable('settle_ms')) as usable,
         list(broker_id order by broker_id)
           filter (where live and end_ms - live_changed_ms >= getvariable('settle_ms')) as live,
         list(broker_id order by broker_id)
           filter (where live or end_ms - live_changed_ms < getvariable('settle_ms')) as may_lead
  from brokers join log_extents using (log_partition) group by all)
select log_partition, events, end_offset, end_ms,
       coalesce(end_ms - coalesce(reconciled_ms, 0) >= getvariable('settle_ms') and c.log_partition is not null, false)
         as settled,
       not kafka_brokers and not coalesce(has_target_cluster, false) as elects_leaders,
       case when ever_allowed then coalesce(usable, []) else [] end as could_fill,
       coalesce(live, []) as could_lead, coalesce(may_lead, []) as may_lead
from log_extents left join clusters c using (log_partition) left join of_brokers using (log_partition);

-- acl_changes: a row is an ACL that an event creates or deletes, with whether it existed before.
create view acl_changes as
select log_partition, "offset", type, acl, coalesce(lag(type) over one_acl = 'AclsCreated', false) as existed
from (select log_partition, "offset", type, unnest(acls) as acl from events where type in ('AclsCreated',
       'AclsDeleted'))
window one_acl as (partition by log_partition, acl order by "offset");

-- quota_changes: a row is a quota that an event sets, or removes (`quota` is null), with its value before.
create view quota_changes as
select *, lag(quota) over (partition by log_partition, entity, key order by "offset") as quota_before
from (select log_partition, "offset", entity, unnest(map_keys(quotas)) as key, unnest(map_values(quotas)) as quota
      from events where type = 'QuotasChanged'
      union all
      select log_partition, "offset", entity, unnest(removed), null from events where type = 'QuotasChanged');

-- credential_changes: a row is a SCRAM credential that an event sets or removes, or the login secret (without a user),
-- with the type of the event before it.
create view credential_changes as
select log_partition, "offset", type, "user", mechanism,
       lag(type) over (partition by log_partition, "user", mechanism order by "offset") as type_before
from events where type in ('ScramCredentialSet', 'ScramCredentialRemoved', 'LoginSecretDrawn');

-- producer_id_blocks: a row is a block of producer ids, with the first id after the block before it.
create view producer_id_blocks as
select log_partition, "offset", "first", "count", lag("first" + "count", 1, 0) over one_log as next_before
from events where type = 'ProducerIdsAllocated'
window one_log as (partition by log_partition order by "offset");

-- ---- topics

-- topic_events: a row is an event that creates, changes or ends a topic, or makes it ready. It has the state under its
-- shard key before: `existing_topic` ('' for none), `life_since` (the offset of the event that began or ended a topic
-- there), `created_at` (null unless the existing topic was created by this controller), its partitions and its factor;
-- and the brokers and settings of that time.
create view topic_events as
select t.* exclude (own_min_isr, own_min_isr_before), coalesce(c.live, []) as live, coalesce(c.usable, []) as usable,
       coalesce(c.registered, []) as registered,
       coalesce(placeholders_allowed, false) as placeholders_allowed,
       coalesce(nullif(if(type = 'TopicCreated', own_min_isr, own_min_isr_before), -1), c.min_isr, 1) as min_isr
from (
  select log_partition, shard, "offset", at_ms, type, topic, external, request_id, "first", partitions, assignments,
    brokers,
         num_partitions, deadline_ms,
         replicas_of(partitions) as placed_on, len(partitions[1].replicas) as factor,
         coalesce(last_value(case when begins_topic(type) then topic when ends_topic(type) then '' end ignore nulls)
                    over earlier, '') as existing_topic,
         coalesce(last_value(case when begins_topic(type) or ends_topic(type) then "offset" end ignore nulls)
                    over earlier, -1) as life_since,
         nullif(last_value(case when type = 'TopicCreated' then "offset" when ends_topic(type) then -1 end ignore nulls)
                  over earlier, -1) as created_at,
         last_value(case when type = 'TopicReady' then "offset" end ignore nulls) over earlier as ready_before,
         last_value(case when begins_topic(type) or type = 'PartitionsAdded'
                         then coalesce("first", 0) + len(partitions) end ignore nulls) over earlier
           as partitions_before,
         last_value(case when begins_topic(type) then len(partitions[1].replicas)
                         when type = 'PartitionChanged' then len(replicas) end ignore nulls) over earlier
           as factor_before,
         coalesce(try_cast(configs['min.insync.replicas'] as int), -1) as own_min_isr,
         last_value(case when begins_topic(type) or type = 'TopicConfigsChanged'
                         then coalesce(try_cast(configs['min.insync.replicas'] as int), -1) end ignore nulls)
           over earlier as own_min_isr_before
  from log.shard_events
  where begins_topic(type) or ends_topic(type)
     or type in ('TopicReady', 'PartitionsAdded', 'TopicConfigsChanged', 'MetadataPropagated')
     or (type = 'PartitionChanged' and "partition" = 0 and len(replicas) <> len(before.replicas))
  window earlier as (partition by log_partition, shard order by "offset"
                     rows between unbounded preceding and 1 preceding)) t
left join cluster_blocks c on c.log_partition = t.log_partition and c.block = t."offset" // 128
  and t."offset" > c.since and t."offset" <= c.until;

-- topic_lives: a row is a range of offsets under a shard key, after `since` up to `until`, in which a topic exists, or
-- none does (''). `created_at` is null unless this controller created the topic.
create view topic_lives as
select log_partition, shard, "offset" as since,
       lead("offset", 1, forever()) over (partition by log_partition, shard order by "offset") as until,
       if(begins_topic(type), topic, '') as topic,
       case when type = 'TopicCreated' then "offset" when type = 'TopicDiscovered' then created_at end as created_at
from topic_events
where begins_topic(type) or ends_topic(type);

-- ready_topics: a row is a TopicReady of a topic that this controller created, with the brokers that had applied its
-- metadata.
create view ready_topics as
select r.log_partition, r.shard, r."offset", r.topic, r.existing_topic, r.life_since, r.created_at, r.ready_before,
       r.live,
       coalesce(list_sort(list_distinct(flatten(list(p.brokers)))), []) as known_by
from topic_events r
left join topic_events p on p.type = 'MetadataPropagated' and p.topic = p.existing_topic
  and p.log_partition = r.log_partition and p.shard = r.shard and p.created_at = r.created_at
    and p."offset" < r."offset"
where r.type = 'TopicReady' and r.topic = r.existing_topic
group by all;

-- requests: a row is a create request for one topic: the offsets of its events (null if there is none), what was
-- requested, and what was made.
create view requests as
with facts as (
  select e.log_partition, e.topic, request_id,
         count(*) filter (where type = 'CreateRequested') as times_requested,
         count(*) filter (where type = 'CreateAnswered') as times_answered,
         min(e."offset") filter (where type = 'CreateRequested') as requested_at,
         max(e."offset") filter (where type = 'CreateRequested') as last_requested_at,
         min(e."offset") filter (where type = 'CreateRejected') as rejected_at,
         min(e."offset") filter (where type = 'TopicCreated') as created_at,
         min(e."offset") filter (where type = 'CreateAnswered') as answered_at,
         max(e."offset") filter (where type = 'CreateAnswered') as last_answered_at,
         min(e."offset") filter (where type = 'CreateAnswered' and error_code = 0) as succeeded_at,
         min(e."offset") filter (where type = 'CreateAnswered' and error_code = 7) as timed_out_at,
         min(at_ms) filter (where type = 'CreateAnswered' and error_code = 7) as timed_out_ms,
         max(e."offset") filter (where type <> 'RulesObserved') as last_at,
         max(timeout_ms) as timeout_ms,
         max(deadline_ms) filter (where type = 'CreateRequested') as deadline_ms,
         any_value(error_code) filter (where type = 'CreateRejected') as rejected_with,
         any_value(message) filter (where type = 'CreateRejected') as rejected_because,
         any_value(error_code) filter (where type = 'CreateAnswered') as answered_with,
         any_value(message) filter (where type = 'CreateAnswered') as answered_because,
         any_value(num_partitions) filter (where type = 'CreateRequested') as num_partitions,
         any_value(replication_factor) filter (where type = 'CreateRequested') as replication_factor,
         any_value(num_partitions) filter (where type = 'RulesObserved') as filled_partitions,
         any_value(replication_factor) filter (where type = 'RulesObserved') as filled_factor,
         any_value(list_transform(list_sort(assignments), lambda one: one.replicas))
           filter (where type = 'CreateRequested') as assigned,
         any_value(list_transform(partitions, lambda one: one.replicas)) filter (where type = 'TopicCreated') as placed,
         any_value(replication_factor) filter (where type = 'TopicCreated') as created_factor
  from log.shard_events e
  where type in ('CreateRequested', 'CreateRejected', 'TopicCreated', 'CreateAnswered', 'RulesObserved')
  group by e.log_partition, e.topic, request_id),
lifetimes as (
  select l.log_partition, l.created_at, min(r."offset") as ready_at,
         nullif(max(l.until), forever()) as ended_at
  from topic_lives l
  left join ready_topics r on r.log_partition = l.log_partition and r.shard = l.shard and r.life_since = l.since
  where l.created_at is not null
  group by all)
select facts.*, ready_at, ended_at, end_offset, live, usable, registered,
       coalesce(len(assigned), filled_partitions, if(num_partitions < 1, coalesce(default_partitions, 1), num_partitions))
         as wanted_partitions,
       coalesce(len(assigned[1]), filled_factor, if(replication_factor < 1, coalesce(default_factor, 1), replication_factor))
         as wanted_factor
from facts
left join lifetimes l using (log_partition, created_at)
left join log_ends e using (log_partition)
left join cluster_blocks c on c.log_partition = facts.log_partition and c.block = facts.created_at // 128
  and facts.created_at > c.since and facts.created_at <= c.until;

-- ---- partitions

-- partition_changes: a row is a partition after an event that creates it (`new`) or changes it. Of a changed partition,
-- `kraft` is true if its replicas are on Kafka brokers, and `before` is the partition before, as the event has it.
create view partition_changes as
select log_partition, shard, topic, "offset", type, external, reconciled, true as new, false as kraft,
       null as before,
       (coalesce("first", 0) + generate_subscripts(partitions, 1) - 1)::int as "partition",
       unnest(partitions, recursive := true)
from log.shard_events where begins_topic(type) or type = 'PartitionsAdded'
union all by name
select log_partition, shard, topic, "offset", type, external, reconciled, false as new, elr is not null as kraft,
       before, "partition", replicas, isr, leader, leader_epoch, partition_epoch
from log.shard_events where type = 'PartitionChanged';

-- partition_creations: a row is an event that creates partitions of an existing topic, with the range of offsets in
-- which that topic exists.
create view partition_creations as
select e.log_partition, e."offset", life.since as life_since, life.until as life_until
from topic_events e
join topic_lives life on life.log_partition = e.log_partition and life.shard = e.shard and life.topic = e.topic
  and life.since = if(e.type = 'PartitionsAdded', e.life_since, e."offset") and life.until > life.since
where e.topic <> '' and (begins_topic(e.type) or e.type = 'PartitionsAdded');

-- partition_steps: a row is a partition after an event that creates or changes it, with its state before (null if an
-- event changes a partition that was never created), and the brokers of that time. `changed` is true if an event changes
-- a partition that existed. The topic in which the partition was created exists after `life_since` up to `life_until`.
create view partition_steps as
with steps as (
  select *, not new and lag("offset") over one_partition is not null as changed,
         lag(leader) over one_partition as leader_before,
         lag(isr) over one_partition as isr_before,
         lag(leader_epoch) over one_partition as leader_epoch_before,
         lag(partition_epoch) over one_partition as partition_epoch_before,
         lag(replicas) over one_partition as replicas_before,
         last_value(case when new then "offset" end ignore nulls) over one_partition as created_at,
         lead("offset", 1, forever()) over one_partition as until
  from partition_changes
  window one_partition as (partition by log_partition, topic, "partition" order by "offset"))
select s.*, life_since, life_until, coalesce(live, []) as live, coalesce(usable, []) as usable,
       s.until = forever() and life_until = forever() as last_of_log
from steps s
left join partition_creations n on n.log_partition = s.log_partition and n."offset" = s.created_at
left join cluster_blocks c on c.log_partition = s.log_partition and c.block = s."offset" // 128
  and s."offset" > c.since and s."offset" <= c.until;

-- ready_partitions: a row is a partition of a topic at its TopicReady.
create view ready_partitions as
select r.log_partition, r."offset", r.topic, s."partition", s.leader, r.live
from topic_events r
join partition_steps s on s.log_partition = r.log_partition and s.shard = r.shard and s.topic = r.topic
  and s.life_since = r.life_since and s."offset" < r."offset" and r."offset" < s.until
where r.type = 'TopicReady';

-- open_partitions: a row is a partition that exists at the end of a log, since its last change.
create view open_partitions as
select log_partition, shard, "offset", topic, "partition", replicas, isr, leader, leader_epoch, partition_epoch
from partition_steps where last_of_log;

-- last_partitions: a row is a partition that exists at the end of a log that has settled, with the brokers of that time.
create view last_partitions as
select p.*, e.could_fill, e.could_lead, e.may_lead, e.elects_leaders
from open_partitions p join log_ends e using (log_partition)
where e.settled;

-- causes: a row is a type of event, with the commands that can lead to it.
create view causes as
from (values
  ('CreateRequested', ['CreateTopic']),
  ('CreateRejected', ['CreateTopic']),
  ('TopicCreated', ['CreateTopic']),
  ('CreateAnswered', ['CreateTopic', 'ExpireRequest', 'ConfirmMetadata', 'DeleteTopic', 'RefuseCreation',
    'DiscoverTopic', 'DiscoverDeletion', 'ReconcileTopics', 'FollowController']),
  ('PartitionsAdded', ['CreatePartitions', 'FollowController']),
  ('TopicDeleted', ['DeleteTopic']),
  ('TopicConfigsChanged', ['AlterTopicConfigs', 'FollowController']),
  ('ChangeRejected', ['CreatePartitions', 'DeleteTopic', 'AlterTopicConfigs']),
  ('PartitionChanged', ['AlterTopicConfigs', 'AlterPartition', 'AssignDirectories', 'BalanceLeaders',
    'DiscoverTopic', 'ElectLeaders', 'ReassignPartitions', 'ReconcileTopics', 'FollowController']),
  ('MetadataPropagated', ['ConfirmMetadata']),
  ('TopicReady', ['ConfirmMetadata', 'DiscoverTopic', 'ReconcileTopics']),
  ('TopicDiscovered', ['DiscoverTopic', 'AdoptMetadata', 'FollowController']),
  ('TopicVanished', ['DiscoverTopic', 'DiscoverDeletion', 'FollowController']),
  ('CreationRefused', ['RefuseCreation']),
  ('ChangeCarriedOut', ['FinishChange']),
  ('BrokerRegistered', ['RegisterBroker', 'AdoptMetadata', 'FollowController']),
  ('BrokerFenced', ['FenceBroker', 'RegisterBroker', 'FollowController']),
  ('BrokerUnfenced', ['UnfenceBroker', 'AdoptMetadata', 'FollowController']),
  ('BrokerUnregistered', ['UnregisterBroker', 'FollowController']),
  ('BrokerLeaving', ['BeginShutdown', 'AdoptMetadata', 'FollowController']),
  ('LogDirsChanged', ['ChangeLogDirs', 'AdoptMetadata', 'FollowController']),
  ('QuorumEpochBegun', ['BeginQuorumEpoch', 'AdoptMetadata', 'FollowController']),
  ('MetadataAdopted', ['AdoptMetadata']),
  ('MetadataHandedBack', ['HandMetadataBack']),
  ('HistorySkipped', ['FollowController']),
  ('HeadSigned', ['RecordHead']),
  ('RulesApplied', ['ApplyRules', 'CopyClusterState']),
  ('ApprovalRequested', ['CreateTopic', 'CreatePartitions', 'AlterTopicConfigs', 'DeleteTopic']),
  ('ApprovalDecided', ['CreateTopic', 'CreatePartitions', 'AlterTopicConfigs', 'DeleteTopic', 'EndApprovals']),
  ('RulesObserved', ['CreateTopic', 'CreatePartitions', 'AlterTopicConfigs', 'DeleteTopic', 'ReassignPartitions',
    'ElectLeaders', 'AlterResourceConfigs', 'DiscoverTopic']),
  ('FeaturesChanged', ['BeginQuorumEpoch', 'ChangeFeatures', 'AdoptMetadata', 'FollowController']),
  ('ResourceConfigsChanged', ['AlterResourceConfigs', 'CopyClusterState', 'BeginQuorumEpoch', 'ChangeFeatures',
    'AdoptMetadata', 'FollowController']),
  ('ProducerIdsAllocated', ['AllocateProducerIds', 'AdoptMetadata', 'FollowController']),
  ('SettingsChanged', ['ChangeSettings', 'AdoptMetadata', 'FollowController']),
  ('ScramCredentialSet', ['AlterUserScramCredentials', 'AdoptMetadata', 'FollowController']),
  ('ScramCredentialRemoved', ['AlterUserScramCredentials', 'FollowController']),
  ('LoginSecretDrawn', ['DrawLoginSecret']),
  ('AclsCreated', ['CreateAcls', 'AdoptMetadata', 'FollowController']),
  ('AclsDeleted', ['DeleteAcls', 'FollowController']),
  ('QuotasChanged', ['AlterClientQuotas', 'AdoptMetadata', 'FollowController']),
  ('RequestsRefused', ['RecordRefusals']))
as causes(type, commands);

-- carried_events: a row is an event without which later events cannot be checked. The creation of a topic that exists
-- has the partitions and configs of the end. With it come the events by which that topic becomes ready, those of
-- create requests without an answer, the last ones of each broker, and all settings, ACLs, quotas, credentials and
-- producer ids.
create view carried_events as
with topics as (
  select l.log_partition, l.shard, since, least(since, created_at) as begun_at,
         max_by(configs, "offset") filter (where type <> 'TopicReady') as configs_now,
         bool_or(type = 'TopicReady') as is_ready
  from topic_lives l
  join log.shard_events e on e.log_partition = l.log_partition and e.shard = l.shard and e."offset" >= since
    and (begins_topic(type) or type in ('TopicConfigsChanged', 'TopicReady'))
  where until = forever() and l.topic <> ''
  group by all),
partitions as (
  select log_partition, shard, list_transform(list_sort(list(
           {'number': "partition", 'state': {'replicas': replicas, 'isr': isr, 'leader': leader,
                                             'leader_epoch': leader_epoch, 'partition_epoch': partition_epoch}})),
           lambda one: one.state) as partitions_now
  from partition_steps where last_of_log group by all),
waiting as (
  select distinct log_partition, topic, request_id, true as is_waiting
  from requests where times_requested > 0 and times_answered = 0)
select e.* replace (case when "offset" = since then partitions_now when since is null then partitions end as partitions,
                    if("offset" = since, configs_now, configs) as configs)
from log.events e
left join topics using (log_partition, shard)
left join partitions using (log_partition, shard)
left join waiting using (log_partition, topic, request_id)
where is_waiting or (begins_topic(type) and "offset" in (since, begun_at))
  or (type in ('TopicReady', if(is_ready, '', 'MetadataPropagated')) and "offset" > begun_at)
union all by name (
  select * from log.events
  where (of_a_broker(type) or type in ('SettingsChanged', 'AclsCreated', 'AclsDeleted', 'QuotasChanged',
         'ScramCredentialSet', 'ScramCredentialRemoved', 'LoginSecretDrawn', 'ProducerIdsAllocated'))
    and (broker_id is null or (log_partition, "offset") in (
      select (log_partition, max("offset")) from log.events group by log_partition, broker_id, type, cordoned)));
