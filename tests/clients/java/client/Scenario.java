import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;

/**
 * What every client's scenario does, with Kafka's own AdminClient. Compiles against clients from 2.0 to 4.4.
 *
 * Usage: Scenario BOOTSTRAP TOPIC; prints one line of JSON.
 */
public final class Scenario {
    private final AdminClient admin;
    private final String topic;

    private Scenario(AdminClient admin, String topic) {
        this.admin = admin;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("request.timeout.ms", "20000");
        try (AdminClient admin = AdminClient.create(properties)) {
            new Scenario(admin, args[1]).play();
        }
    }

    private void play() throws Exception {
        create(topic, "7200000");
        awaitPartitions(3);
        TopicDescription described = describe();
        boolean listed = admin.listTopics().names().get().contains(topic);
        Exception again = refusal(() -> create(topic, "7200000"));
        Exception bad = refusal(() -> create(topic + "-bad", "soon"));
        admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(5))).all().get();
        int grown = awaitPartitions(5);
        String retention = retention();
        admin.deleteTopics(Collections.singleton(topic)).all().get();
        boolean gone = false;
        for (int i = 0; i < 6000 && !gone; i++) {
            Thread.sleep(20);
            gone = !admin.listTopics().names().get().contains(topic);
        }
        System.out.println("{\"listed\": " + listed + ", \"partitions\": " + described.partitions().size()
            + ", \"factor\": " + described.partitions().get(0).replicas().size() + ", \"retention_ms\": \"" + retention
            + "\", \"again\": " + code(again) + ", \"bad\": " + code(bad) + ", \"bad_message\": \""
            + bad.getMessage().replace("\"", "'") + "\", \"grown\": " + grown + ", \"gone\": " + gone + "}");
    }

    private Void create(String name, String retention) throws Exception {
        NewTopic added = new NewTopic(name, 3, (short) 2).configs(Collections.singletonMap("retention.ms", retention));
        admin.createTopics(Collections.singleton(added)).all().get();
        return null;
    }

    private String retention() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource).get("retention.ms").value();
    }

    /** A real cluster's brokers may learn of a change a little after its answer. */
    private int awaitPartitions(int wanted) throws Exception {
        int seen = 0;
        for (int i = 0; i < 6000 && seen != wanted; i++) {
            try {
                seen = describe().partitions().size();
            } catch (ExecutionException unknownYet) {
                seen = 0;
            }
            if (seen != wanted) Thread.sleep(20);
        }
        return seen;
    }

    /** `values()` became `topicNameValues()` in 3.1 and is gone since 4.0. */
    @SuppressWarnings("unchecked")
    private TopicDescription describe() throws Exception {
        Object result = AdminClient.class.getMethod("describeTopics", Collection.class)
            .invoke(admin, Collections.singleton(topic));
        String method;
        try {
            method = result.getClass().getMethod("topicNameValues").getName();
        } catch (NoSuchMethodException older) {
            method = "values";
        }
        Object values = result.getClass().getMethod(method).invoke(result);
        return ((Map<String, KafkaFuture<TopicDescription>>) values).get(topic).get();
    }

    private static Exception refusal(Callable<Void> attempt) throws Exception {
        try {
            attempt.call();
        } catch (ExecutionException refused) {
            return (Exception) refused.getCause();
        }
        throw new AssertionError("was not refused");
    }

    private static short code(Exception error) {
        return Errors.forException(error).code();
    }
}
