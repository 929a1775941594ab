import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Consumers of topics which may not exist (KIP-361). Each assigns partition 0 of its topic; they poll in turn until
 * those that allow it know their topics, or poll has thrown in all, or so many seconds have passed.
 *
 * Usage: Poll BOOTSTRAP SECONDS TOPIC=ALLOW_AUTO_CREATE...; prints a line for each topic: "polled", or the exception
 * that poll threw.
 */
public final class Poll {
    private final KafkaConsumer<String, String> consumer;
    private final String topic;
    private final boolean allows;
    private String outcome = "polled";

    private Poll(String bootstrap, String topic, String allow) {
        this.topic = topic;
        allows = Boolean.parseBoolean(allow);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("allow.auto.create.topics", allow);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("metadata.max.age.ms", "200");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        consumer = new KafkaConsumer<>(properties);
        consumer.assign(Collections.singleton(new TopicPartition(topic, 0)));
    }

    private boolean poll() {
        try {
            consumer.poll(Duration.ofMillis(100));
            return true;
        } catch (RuntimeException thrown) {
            outcome = thrown.getClass().getSimpleName() + ": " + thrown.getMessage();
            return false;
        }
    }

    private boolean knowsTopic() {
        try {
            List<?> partitions = consumer.partitionsFor(topic, Duration.ofMillis(100));
            return partitions != null && !partitions.isEmpty();
        } catch (RuntimeException notYet) {
            return false;
        }
    }

    public static void main(String[] args) {
        List<Poll> all = new ArrayList<>();
        for (int i = 2; i < args.length; i++) {
            String[] topic = args[i].split("=");
            all.add(new Poll(args[0], topic[0], topic[1]));
        }
        List<Poll> polling = new ArrayList<>(all);
        long until = System.nanoTime() + Long.parseLong(args[1]) * 1_000_000_000L;
        boolean allows = all.stream().anyMatch(each -> each.allows);
        do {
            polling.removeIf(each -> !each.poll());
            if (allows && polling.stream().noneMatch(each -> each.allows && !each.knowsTopic())) break;
        } while (System.nanoTime() < until && !polling.isEmpty());
        for (Poll each : all) each.consumer.close();
        for (Poll each : all) System.out.println(each.outcome);
    }
}
