import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * Every read of Java's admin client, as consoles call them: one line a read, its name and its result or its error. The
 * last line names the reads of the interface that are not called.
 */
public final class Reads {
    private static final Map<String, Callable<Object>> READS = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        TopicPartition partition = new TopicPartition(topic, 0);
        List<String> group = List.of("g");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0], "default.api.timeout.ms", 60000))) {
            READS.put("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
            READS.put("describeClassicGroups", () -> admin.describeClassicGroups(group).all().get());
            READS.put("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
            READS.put("describeCluster", () -> admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get());
            READS.put("describeConfigs", () -> admin.describeConfigs(List.of(
                new ConfigResource(ConfigResource.Type.TOPIC, topic),
                new ConfigResource(ConfigResource.Type.BROKER, "1"),
                new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1"),
                new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "m"),
                new ConfigResource(ConfigResource.Type.GROUP, "g"))).all().get().size());
            READS.put("describeConsumerGroups", () -> admin.describeConsumerGroups(group).all().get());
            READS.put("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
            READS.put("describeFeatures", () -> admin.describeFeatures().featureMetadata().get());
            READS.put("describeLogDirs", () -> admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get());
            READS.put("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId());
            READS.put("describeProducers", () -> admin.describeProducers(List.of(partition)).all().get());
            READS.put("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(
                List.of(new TopicPartitionReplica(topic, 0, 1))).all().get().size());
            READS.put("describeShareGroups", () -> admin.describeShareGroups(group).all().get());
            READS.put("describeStreamsGroups", () -> admin.describeStreamsGroups(group).all().get());
            READS.put("describeTopics", () -> admin.describeTopics(List.of(topic)).allTopicNames().get().size());
            READS.put("describeTransactions", () -> admin.describeTransactions(List.of("t")).all().get());
            READS.put("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
            READS.put("listClientMetricsResources", () -> admin.listClientMetricsResources().all().get());
            READS.put("listConfigResources", () -> admin.listConfigResources().all().get().contains(
                new ConfigResource(ConfigResource.Type.TOPIC, topic)));
            READS.put("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(
                Map.of("g", new ListConsumerGroupOffsetsSpec())).all().get());
            READS.put("listConsumerGroups", () -> admin.listConsumerGroups().all().get());
            READS.put("listGroups", () -> admin.listGroups().all().get());
            READS.put("listOffsets", () -> admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get().size());
            READS.put("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
            READS.put("listShareGroupOffsets", () -> admin.listShareGroupOffsets(
                Map.of("g", new ListShareGroupOffsetsSpec())).all().get());
            READS.put("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(
                Map.of("g", new ListStreamsGroupOffsetsSpec())).all().get());
            READS.put("listTopics", () -> admin.listTopics().names().get().contains(topic));
            READS.put("listTransactions", () -> admin.listTransactions().all().get());
            for (Map.Entry<String, Callable<Object>> read : READS.entrySet()) {
                System.out.println(read.getKey() + " " + outcome(read.getValue()));
            }
        }
        Set<String> left = new TreeSet<>();
        for (Method method : Admin.class.getMethods()) {
            if (method.getName().matches("(describe|list)[A-Z].*")) left.add(method.getName());
        }
        left.removeAll(READS.keySet());
        System.out.println("left " + left);
    }

    private static Object outcome(Callable<Object> read) {
        try {
            return read.call();
        } catch (Exception error) {
            return error.getCause() == null ? error : error.getCause().getClass().getSimpleName();
        }
    }
}
