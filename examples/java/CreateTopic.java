import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.Node;

/**
 * Create a topic, print the reason if it is refused, and print where its replicas are. Needs kafka-clients 3.1 or newer.
 *
 * <pre>java -cp 'libs/*' CreateTopic.java 127.0.0.1:9092 pay.orders</pre>
 */
public class CreateTopic {
    public static void main(String[] words) throws Exception {
        String bootstrap = words[0];
        String topic = words[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            NewTopic wanted = new NewTopic(topic, 3, (short) 3).configs(Map.of("retention.ms", "86400000"));
            try {
                admin.createTopics(List.of(wanted), new CreateTopicsOptions().timeoutMs(30_000)).all().get();
                System.out.println("created " + topic);
            } catch (ExecutionException refused) {
                Throwable why = refused.getCause();
                System.out.println("refused " + topic + ": " + why.getClass().getSimpleName() + ": " + why.getMessage());
            }
            admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().forEach(one -> {
                List<Integer> replicas = one.replicas().stream().map(Node::id).collect(Collectors.toList());
                System.out.println(
                        "partition " + one.partition() + " leader " + one.leader().id() + " replicas " + replicas);
            });
        }
    }
}
