import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A consumer that wants a topic which may not exist (KIP-361). Assigns partition 0 and polls, once and then for
 * as many seconds as told.
 *
 * Usage: Poll BOOTSTRAP TOPIC ALLOW_AUTO_CREATE SECONDS; prints "polled", or the exception that poll threw.
 */
public final class Poll {
    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("allow.auto.create.topics", args[2]);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("metadata.max.age.ms", "200");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(Collections.singleton(new TopicPartition(args[1], 0)));
            consumer.poll(Duration.ofMillis(100));
            long until = System.nanoTime() + Long.parseLong(args[3]) * 1_000_000_000L;
            while (System.nanoTime() < until) consumer.poll(Duration.ofMillis(100));
            System.out.println("polled");
        } catch (RuntimeException thrown) {
            System.out.println(thrown.getClass().getSimpleName() + ": " + thrown.getMessage());
        }
    }
}
