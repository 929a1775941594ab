import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.common.utils.Time;

/**
 * Real Kafka nodes in one JVM, which starts faster and eats less than a JVM each.
 *
 * Usage: ReferenceCluster CLUSTER_ID NODE=PROPERTIES_FILE... Formats each node's storage where that was not done, starts
 * the nodes, prints "ready", then obeys lines on standard input: "stop NODE", "start NODE". Ends with its input, so that
 * no cluster outlives the test process that started it.
 */
public final class ReferenceCluster {
    private static final Map<String, Properties> CONFIGS = new TreeMap<>();
    private static final Map<String, KafkaRaftServer> NODES = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i++) {
            String[] nodeAndFile = args[i].split("=", 2);
            format(args[0], nodeAndFile[1]);
            Properties properties = new Properties();
            try (FileInputStream in = new FileInputStream(nodeAndFile[1])) {
                properties.load(in);
            }
            CONFIGS.put(nodeAndFile[0], properties);
        }
        Thread[] starting = CONFIGS.keySet().stream().map(node -> new Thread(() -> start(node))).toArray(Thread[]::new);
        for (Thread each : starting) each.start();
        for (Thread each : starting) each.join();
        System.out.println(NODES.size() == CONFIGS.size() ? "ready" : "failed");
        obey();
        Runtime.getRuntime().halt(0);
    }

    private static void format(String clusterId, String file) {
        String[] arguments = {"format", "--ignore-formatted", "-t", clusterId, "-c", file};
        if (StorageTool.execute(arguments, System.out) != 0) throw new IllegalStateException("cannot format " + file);
    }

    private static void start(String node) {
        KafkaRaftServer server = new KafkaRaftServer(KafkaConfig.fromProps(CONFIGS.get(node)), Time.SYSTEM);
        server.startup();
        synchronized (NODES) {
            NODES.put(node, server);
        }
    }

    private static void obey() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("stop")) {
                KafkaRaftServer server = NODES.remove(words[1]);
                server.shutdown();
                server.awaitShutdown();
                System.out.println("stopped " + words[1]);
            } else if (words[0].equals("start")) {
                start(words[1]);
                System.out.println("started " + words[1]);
            }
        }
    }
}
