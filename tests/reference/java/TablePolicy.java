import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** The policy of the differential table; tests/reference/policies.py is the same in Python. */
public final class TablePolicy implements CreateTopicPolicy {
    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public void validate(RequestMetadata request) {
        String topic = request.topic();
        if (topic.startsWith("refused")) throw new PolicyViolationException("no topic may be called " + topic);
        if (topic.startsWith("mute")) throw new PolicyViolationException(null);
        if (topic.startsWith("boom")) throw new IllegalStateException("the policy fell over " + topic);
        if (topic.startsWith("echo")) throw new PolicyViolationException(describe(request));
    }

    private static String describe(RequestMetadata request) {
        Map<Integer, ?> assignments = request.replicasAssignments();
        return "partitions=" + request.numPartitions() + " factor=" + request.replicationFactor() + " assignments="
            + (assignments == null ? null : new TreeMap<>(assignments)) + " configs=" + new TreeMap<>(request.configs());
    }

    @Override
    public void close() {
    }
}
