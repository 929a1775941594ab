-- The invariants. Each is a query of the views (views.sql) whose rows are its violations: with `seen`, `expected`,
-- and, if they apply, `log_partition`, `offset` and `topic`. The line before it has its name and its requirement;
-- further queries of the same name follow without that line. docs/invariants.md is generated from this file.
--
-- This is a second witness: it knows nothing of the code that decides, so it finds mistakes of that code.

-- offsets-contiguous: offsets are contiguous, from 0 on
-- A gap is reported at the first offset after it, a repetition at its place.
select *, first as "offset", 'offset ' || first as seen, 'offset ' || expected_offset as expected
from (select *, coalesce(max(last) over (partition by log_partition order by first, last
                                         rows between unbounded preceding and 1 preceding) + 1, 0) as expected_offset
      from offset_runs)
where first <> expected_offset;

-- settings-first: the first event is SettingsChanged
select *, type as seen, 'SettingsChanged' as expected
from events
where "offset" = 0 and type <> 'SettingsChanged';

-- one-creation-per-life: a topic is created once before it is deleted, and no other has its shard key
-- The shard key is the name with `.` as `_`. A target cluster may show again a topic that exists.
select *, 'created while ' || existing_topic || ' exists' as seen, 'no topic under this shard key' as expected
from topic_events
where type = 'TopicCreated' and existing_topic <> '';

select *, 'discovered while ' || existing_topic || ' exists' as seen,
  'no other topic under this shard key' as expected
from topic_events
where type = 'TopicDiscovered' and existing_topic not in ('', topic);

-- topic-exists: no event concerns a topic or partition that does not exist
-- Events of requests (requested, rejected, answered) are not meant. The partition was created in this life of the
-- topic. A topic has a name.
select *, type || ' while there is ' || if(existing_topic = '', 'none', existing_topic) as seen, 'the topic' as expected
from topic_events
where topic = '' or (type not in ('TopicCreated', 'TopicDiscovered', 'PartitionChanged') and existing_topic <> topic);

select *, type || ' of partition ' || "partition" as seen,
  'a partition that was created, of a topic that exists' as expected
from partition_steps
where not new and coalesce(life_until, -1) < "offset";

-- one-answer: each create request is answered exactly once for each of its topics, unless it still waits
-- It may wait only while its topic exists, is not ready, and its timeout was above 0. A decision that the end of the
-- log may cut off is not judged.
select *, last_requested_at as "offset", 'requested again' as seen, 'one request' as expected
from requests
where times_requested > 1;

select *, last_answered_at as "offset", 'answered again' as seen, 'one answer' as expected
from requests
where times_answered > 1;

select *, greatest(last_at, ready_at, ended_at) as "offset", 'never answered' as seen,
  'one answer, or a topic that is waited for' as expected
from requests
where times_requested > 0 and times_answered = 0 and greatest(last_at, ready_at, ended_at) < end_offset
  and not (created_at is not null and ready_at is null and ended_at is null and timeout_ms > 0);

-- none-after-ready: NONE is answered only after TopicReady
-- The TopicReady is that of the topic which this request created.
select *, succeeded_at as "offset",
  if(created_at is null, 'NONE, but not created', 'NONE before TopicReady') as seen,
  'TopicReady before the answer' as expected
from requests
where requested_at < succeeded_at and succeeded_at < coalesce(ready_at, forever());

-- timeout-when-due: REQUEST_TIMED_OUT is answered only at or after the deadline
select *, timed_out_at as "offset", 'timed out at ' || timed_out_ms as seen, 'at or after ' || deadline_ms as expected
from requests
where timed_out_ms < deadline_ms;

-- answer-as-decided: a rejected create is answered with the code and message of its rejection
select *, answered_at as "offset", 'error ' || shown(answered_with) || ': ' || shown(answered_because) as seen,
  'error ' || shown(rejected_with) || ': ' || shown(rejected_because) as expected
from requests
where rejected_at is not null and answered_at is not null
  and (answered_with, answered_because) is distinct from (rejected_with, rejected_because);

-- replicas-distinct: no partition has a replica twice
-- A partition has replicas.
select *, 'partition ' || "partition" || ': replicas ' || listed(replicas) as seen, 'distinct replicas' as expected
from partition_changes
where len(replicas) = 0 or has_twice(replicas);

-- leader-in-isr: the leader is in the in-sync set, the set within the replicas, no placeholder in either
-- The set has no member twice. It is not empty, except with KRaft brokers, which have eligible leader replicas
-- (KIP-966). The leader may be -1.
select *, 'partition ' || "partition" || ': leader ' || leader || ', in sync ' || listed(isr) || ', replicas '
    || listed(replicas) as seen,
  'a leader of the in-sync set, which is of the replicas, without placeholders' as expected
from partition_steps
where ((new and not external) or changed)
  and ((len(isr) = 0 and not kraft) or not within(isr, replicas) or has_twice(isr) or list_min(isr) < 0
       or not (leader = -1 or list_contains(isr, leader)));

-- replicas-live: replicas are placed on live brokers not cordoned, and assigned by hand to registered ones
-- The live brokers that TopicCreated and PartitionsAdded record for the placement are those of that time.
select *, created_at as "offset", 'placed on ' || listed(placed_outside(flatten(placed), usable)) as seen,
  'live brokers that are not cordoned: ' || listed(usable) as expected
from requests
where assigned is null and len(placed_outside(flatten(placed), usable)) > 0;

select *, created_at as "offset",
  'assigned by hand to ' || listed(placed_outside(flatten(placed), registered)) as seen,
  'registered brokers: ' || listed(registered) as expected
from requests
where assigned is not null and len(placed_outside(flatten(placed), registered)) > 0;

select *, 'placed on ' || listed(placed_outside(placed_on, usable)) as seen,
  'live brokers that are not cordoned: ' || listed(usable) as expected
from topic_events
where type = 'PartitionsAdded' and assignments is null and len(placed_outside(placed_on, usable)) > 0;

select *, 'assigned by hand to ' || listed(placed_outside(placed_on, registered)) as seen,
  'registered brokers: ' || listed(registered) as expected
from topic_events
where type = 'PartitionsAdded' and not external and assignments is not null
  and len(placed_outside(placed_on, registered)) > 0;

select *, 'placement saw ' || listed(brokers) as seen, 'live brokers: ' || listed(live) as expected
from topic_events
where (type = 'TopicCreated' or (type = 'PartitionsAdded' and not external))
  and list_sort(brokers) is distinct from live;

-- epochs-never-go-back: each change raises the partition epoch by one, and the leader epoch if the leader changes
-- With KRaft brokers the leader epoch may also rise under the same leader. A partition that this controller created
-- begins with both epochs 0. A change names the partition before it. So a lost change shows too.
select *, 'partition ' || "partition" || ': epochs ' || leader_epoch || ', ' || partition_epoch as seen,
  'epochs 0, 0 when it is new' as expected
from partition_steps
where new and type <> 'TopicDiscovered' and not external and not (leader_epoch = 0 and partition_epoch = 0);

select *, 'partition ' || "partition" || ': epochs ' || leader_epoch || ', ' || partition_epoch as seen,
  'epochs ' || leader_epoch_due || ', ' || partition_epoch_before + 1 as expected
from (select *, leader_epoch_before + (leader <> leader_before)::int as leader_epoch_due
      from partition_steps where changed)
where partition_epoch <> partition_epoch_before + 1
  or not (leader_epoch = leader_epoch_due or (kraft and leader_epoch = leader_epoch_before + 1));

select *, 'partition ' || "partition" || ': changed from ' || before as seen,
  'from replicas ' || listed(replicas_before) || ', in sync ' || listed(isr_before) || ', leader ' || leader_before
    || ', epochs ' || leader_epoch_before || ', ' || partition_epoch_before as expected
from partition_steps
where changed and type = 'PartitionChanged'
  and (before.leader <> leader_before or before.leader_epoch <> leader_epoch_before
       or before.partition_epoch <> partition_epoch_before or before.isr <> isr_before
       or before.replicas <> replicas_before);

-- partitions-never-fall: partitions are appended after the last one
select *, len(partitions) || ' partitions added from ' || "first" as seen,
  'some, from ' || shown(partitions_before) as expected
from topic_events
where type = 'PartitionsAdded' and existing_topic = topic
  and ("first" is distinct from partitions_before or len(partitions) = 0);

-- placeholders-allowed: placeholders come only while allowed, and with enough live brokers
-- Allowed: `enable.under.replicated.topic.creation` is true. Enough: min(`min.insync.replicas`, factor) brokers are
-- live and not cordoned; the topic's own setting has precedence. There are as many placeholders as such brokers are
-- missing.
select *, -list_min(placed_on) || ' of ' || factor || ' wait, ' || len(usable) || ' brokers live, allowed: '
    || placeholders_allowed as seen,
  'allowed, at least ' || least(factor, min_isr) || ' live, and each of them used' as expected
from topic_events
where (type = 'TopicCreated' or (type = 'PartitionsAdded' and not external))
  and list_min(placed_on) < 0
  and not (placeholders_allowed and len(usable) - list_min(placed_on) = factor and len(usable) >= least(factor,
    min_isr));

-- placeholders-filled: placeholders are filled by live brokers that are not cordoned, and as soon as one could
-- The reconciler leaves no placeholder in a partition that it changes, nor at the end of the log, if such a broker
-- that is no replica exists.
select *, 'partition ' || "partition" || ': ' || listed(replicas) || ' for ' || listed(replicas_before) as seen,
  'one of its placeholders filled by one of the brokers ' || listed(usable) as expected
from partition_steps
where changed and replicas <> replicas_before and (not kraft or (list_min(replicas_before) < 0 and reconciled))
  and (len(replicas) <> len(replicas_before)
       or len(list_filter(replicas, lambda id, place: id <> replicas_before[place]
                and (replicas_before[place] >= 0 or not list_contains(usable, id)))) > 0);

select *, 'partition ' || "partition" || ': ' || listed(replicas) || ' after a review' as seen,
  'filled by one of ' || listed(others(usable, replicas)) as expected
from partition_steps
where reconciled and changed and list_min(replicas) < 0 and len(others(usable, replicas)) > 0;

select *, 'partition ' || "partition" || ': ' || listed(replicas) || ' at the end of the log' as seen,
  'filled by one of ' || listed(others(could_fill, replicas)) as expected
from last_partitions
where list_min(replicas) < 0 and len(others(could_fill, replicas)) > 0;

-- created-as-asked: no topic comes of a request that was rejected, or that is not recorded
-- A dry run leaves no CreateRequested.
select *, created_at as "offset", 'request ' || request_id || ' is in the log without CreateRequested' as seen,
  'a recorded request (a dry run leaves none)' as expected
from requests
where created_at < coalesce(requested_at, forever());

select *, greatest(created_at, rejected_at) as "offset", 'created and rejected by request ' || request_id as seen,
  'one of both' as expected
from requests
where created_at is not null and rejected_at is not null;

-- as-asked: partitions, factor and replicas are the requested ones, or the defaults
-- The defaults are `num.partitions` and `default.replication.factor` of that time. PartitionsAdded reaches the
-- requested count, with as many replicas each as the first partition has.
select *, created_at as "offset", len(placed) || ' partitions' as seen, wanted_partitions || ' partitions' as expected
from requests
where len(placed) <> wanted_partitions;

select *, created_at as "offset", 'factor ' || created_factor || ', partitions of '
    || array_to_string(list_sort(list_distinct(list_transform(placed, lambda one: len(one)))), ' and ') || ' replicas'
    as seen,
  wanted_factor || ' replicas of each' as expected
from requests
where created_factor <> wanted_factor or len(list_filter(placed, lambda one: len(one) <> wanted_factor)) > 0;

select *, created_at as "offset", 'partition ' || "partition" || ': replicas '
       || listed(placed["partition" + 1]) as seen,
  'replicas ' || listed(assigned["partition" + 1]) as expected
from (select *, unnest(range(least(len(placed),
       len(assigned)))) as "partition" from requests where assigned is not null)
where placed["partition" + 1] <> assigned["partition" + 1];

select *, "first" + len(partitions) || ' partitions' as seen, num_partitions || ' partitions' as expected
from topic_events
where type = 'PartitionsAdded' and not external and "first" + len(partitions) <> num_partitions;

select *, 'partitions of ' || array_to_string(list_sort(list_distinct(
      list_transform(partitions, lambda one: len(one.replicas)))), ' and ') || ' replicas' as seen,
  factor_before || ' replicas of each' as expected
from topic_events
where type = 'PartitionsAdded' and not external
  and len(list_filter(partitions, lambda one: len(one.replicas) <> factor_before)) > 0;

select *, 'partitions from ' || "first" || ': replicas ' || listed(placed_on) as seen,
  'replicas ' || listed(replicas_of(assignments)) as expected
from topic_events
where type = 'PartitionsAdded' and not external and assignments is not null and list_transform(assignments,
    lambda one: one.replicas) <> list_transform(partitions, lambda one: one.replicas);

-- rejected-with-rule: what is rejected names an error and the rule that decided
select *, 'error ' || shown(error_code) || ', rule ' || shown(rule) as seen,
  'an error code, and the rule that decided' as expected
from events
where type in ('CreateRejected', 'ChangeRejected') and (coalesce(rule, '') = '' or coalesce(error_code, 0) = 0);

-- leaders-unfenced: leaders are elected among live brokers
-- Later, a leader may be fenced until its topic is reconciled. Nobody (-1) may be elected.
select *, 'partition ' || "partition" || ': leader ' || leader as seen,
  'one of the live brokers ' || listed(live) as expected
from partition_steps
where not external and ((new and type <> 'TopicDiscovered')
       or (changed and leader <> -1 and (leader <> leader_before or isr <> isr_before)))
  and not list_contains(live, leader);

-- led-when-possible: no partition is left without a live leader while a member of its in-sync set is live
-- This is judged at the end of the log, and only if this controller elects leaders among simulated brokers.
select *, 'partition ' || "partition" || ': leader ' || leader || ', in sync ' || listed(isr)
       || ' at the end of the log'
  as seen, 'a live leader, if one of ' || listed(could_lead) || ' is in sync' as expected
from last_partitions
where elects_leaders
  and if(leader = -1, list_has_any(isr, could_lead), not list_contains(may_lead, leader));

-- ready-is-true: a topic becomes ready once, with live leaders, and known to every live broker
-- It is known to a broker that an earlier MetadataPropagated of this life names.
select *, 'ready again' as seen, 'once in a topic''s life' as expected
from topic_events
where type = 'TopicReady' and existing_topic = topic and (created_at is null or ready_before > created_at);

select *, 'ready, and known by ' || listed(known_by) as seen, 'known by all live brokers ' || listed(live) as expected
from ready_topics
where created_at is not null and not within(live, known_by);

select *, 'ready, and partition ' || "partition" || ' has leader ' || leader as seen,
  'one of the live brokers ' || listed(live) as expected
from ready_partitions
where not coalesce(list_contains(live, leader), false);

-- cause-exists: each event is caused by a command that leads to it, and that of a create by a recorded request
-- If the command is the request itself, it is of the same request.
select *, type || ' by ' || shown(cause_command) || ' ' || shown(cause_id) as seen,
  'a command that leads to this event, of the same request' as expected
from events left join causes using (type)
where coalesce(cause_id, '') = '' or not coalesce(list_contains(commands, cause_command), false)
  or (cause_id <> request_id and (
        (cause_command in ('CreateTopic', 'ExpireRequest')
         and type in ('CreateRequested', 'CreateRejected', 'CreateAnswered'))
        or (cause_command in ('CreateTopic', 'CreatePartitions', 'DeleteTopic', 'AlterTopicConfigs')
            and type in ('TopicCreated', 'PartitionsAdded', 'TopicDeleted', 'TopicConfigsChanged', 'ChangeRejected'))
        or type = 'ChangeCarriedOut'));

select *, rejected_at as "offset", 'CreateRejected of request ' || request_id as seen,
  'a CreateRequested of that request before it' as expected
from requests
where rejected_at < coalesce(requested_at, forever());

select *, answered_at as "offset", 'CreateAnswered of request ' || request_id as seen,
  'a CreateRequested of that request before it' as expected
from requests
where answered_at < coalesce(requested_at, forever());

-- broker-life: brokers are registered before they are fenced or unfenced, and their epochs rise
select *, since as "offset",
  type || ' of broker ' || broker_id || ' with epoch ' || shown(broker_epoch) || ', which was '
    || case when was_unfenced then 'unfenced' when was_registered then 'fenced' else 'not registered' end as seen,
  'a registered broker, fenced or not as the event needs it, and an epoch above ' || epoch_before as expected
from (
  select *, lag(registered, 1, false) over one_broker as was_registered,
    coalesce(last_value(case when type not in ('LogDirsChanged', 'BrokerLeaving') then type = 'BrokerUnfenced' end
               ignore nulls) over (partition by log_partition, broker_id order by since
                                   rows between unbounded preceding and 1 preceding), false) as was_unfenced,
    coalesce(max(case when type = 'BrokerRegistered' then broker_epoch end)
               over (partition by log_partition order by since rows between unbounded preceding and 1 preceding), 0)
      as epoch_before
  from broker_spans
  window one_broker as (partition by log_partition, broker_id order by since))
where case type
    when 'BrokerRegistered' then was_unfenced or broker_epoch <= epoch_before
    when 'BrokerUnfenced' then was_unfenced or not was_registered
    when 'BrokerFenced' then not was_unfenced
    when 'BrokerLeaving' then not was_unfenced and not external
    else not was_registered end;

-- acl-life: an ACL is created once before it is deleted
select *, type || ': ' || acl || if(existed, ', which exists', ', which does not exist') as seen,
  if(existed, 'another ACL', 'an ACL that exists') as expected
from acl_changes
where existed <> (type = 'AclsDeleted');

select *, type || ' of none' as seen, 'at least one ACL' as expected
from events
where type in ('AclsCreated', 'AclsDeleted') and len(acls) = 0;

-- quota-life: a quota is above 0, changes, and is removed only if it exists
select *, key || ' of ' || entity || if(quota is null, ' removed', ' set to ' || quota) as seen,
  if(quota is null, 'a quota that exists', 'a value above 0 other than ' || shown(quota_before)) as expected
from quota_changes
where if(quota is null, quota_before is null, quota <= 0 or quota = quota_before);

-- credential-life: a credential is removed only if it exists, and the login secret is drawn once
select *, type || coalesce(' of ' || "user", '') as seen,
  if(type = 'LoginSecretDrawn', 'one login secret', 'a credential that exists') as expected
from credential_changes
where (type = 'ScramCredentialRemoved' and type_before is distinct from 'ScramCredentialSet')
  or (type = 'LoginSecretDrawn' and type_before is not null);

-- refusals-counted: a record of refused requests has a count and an error
select *, shown("count") || ' requests, error ' || shown(error_code) as seen, 'at least one, with an error' as expected
from events
where type = 'RequestsRefused' and not (coalesce("count", 0) > 0 and coalesce(error_code, 0) <> 0);

-- configs-of-resources: dynamic configs belong to a broker, a client metrics subscription or a group
select *, 'configs of ' || resource as seen, 'a broker, a client metrics subscription or a group' as expected
from events
where type = 'ResourceConfigsChanged' and not starts_with(resource, 'Broker:')
  and not starts_with(resource, 'ClientMetrics:') and not starts_with(resource, 'Group:');

-- producer-ids-rise: blocks of producer ids do not overlap, and rise
select *, "count" || ' producer ids from ' || "first" as seen, 'some, from ' || next_before || ' on' as expected
from producer_id_blocks
where "first" < next_before or "count" <= 0;
