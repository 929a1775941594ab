import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;

/**
 * Tries every request that can change a topic, with the AdminClient of 3.9: the last release that has AlterConfigs.
 *
 * Usage: ChangeTopic BOOTSTRAP TOPIC; prints the error code of each as one line of JSON.
 */
public final class ChangeTopic {
    private static final Map<String, Short> codes = new LinkedHashMap<>();

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        ConfigResource of = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigResource cluster = new ConfigResource(ConfigResource.Type.BROKER, "");
        Set<TopicPartition> first = Collections.singleton(new TopicPartition(topic, 0));
        try (AdminClient admin = AdminClient.create(properties)) {
            attempt("CreateTopics", () -> admin.createTopics(List.of(new NewTopic(topic + "-new", 9, (short) 1))).all().get());
            attempt("CreatePartitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(9))).all().get());
            Config config = new Config(List.of(new ConfigEntry("retention.ms", "-1")));
            attempt("AlterConfigs", () -> admin.alterConfigs(Map.of(of, config)).all().get());
            attempt("IncrementalAlterConfigs", () -> set(admin, of, "retention.ms"));
            attempt("IncrementalAlterConfigs of brokers", () -> set(admin, cluster, "log.retention.ms"));
            attempt("AlterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(
                first.iterator().next(), Optional.of(new NewPartitionReassignment(List.of(3))))).all().get());
            attempt("ElectLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, first).all().get());
            attempt("DeleteTopics", () -> admin.deleteTopics(List.of(topic)).all().get());
        }
        System.out.println(codes.entrySet().stream().map(each -> "\"" + each.getKey() + "\": " + each.getValue())
            .collect(Collectors.joining(", ", "{", "}")));
    }

    private static Void set(AdminClient admin, ConfigResource of, String name) throws Exception {
        Collection<AlterConfigOp> ops = List.of(new AlterConfigOp(new ConfigEntry(name, "-1"), AlterConfigOp.OpType.SET));
        return admin.incrementalAlterConfigs(Map.of(of, ops)).all().get();
    }

    private static void attempt(String name, Callable<Void> request) throws Exception {
        try {
            request.call();
            codes.put(name, (short) 0);
        } catch (ExecutionException refused) {
            codes.put(name, Errors.forException(refused.getCause()).code());
        }
    }
}
