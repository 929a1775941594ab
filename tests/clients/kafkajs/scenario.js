// What every client's scenario does, with kafkajs. Usage: node scenario.js BOOTSTRAP TOPIC; prints one line of JSON.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic] = process.argv.slice(2);
// KAFKAJS_CONFIG may hold more of the client's configuration, such as ssl and sasl.
const more = JSON.parse(process.env.KAFKAJS_CONFIG || "{}");
if (process.env.KAFKA_TOKEN) {
  more.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: process.env.KAFKA_TOKEN }) };
}
const kafka = new Kafka({
  clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 }, ...more,
});

async function refusal(attempt) {
  try {
    await attempt();
    return { code: 0, message: null };
  } catch (error) {
    const cause = error.errors ? error.errors[0] : error;
    return { code: cause.code ?? -1, message: cause.message };
  }
}

// A real cluster's brokers may learn of a change a little after its answer.
async function eventually(seen) {
  for (let i = 0; i < 200; i++) {
    if (await seen()) return true;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return false;
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  const wanted = {
    topic, numPartitions: 3, replicationFactor: 2, configEntries: [{ name: "retention.ms", value: "7200000" }],
  };
  await admin.createTopics({ topics: [wanted], waitForLeaders: true });
  const listed = (await admin.listTopics()).includes(topic);
  const described = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0];
  const configs = await admin.describeConfigs({
    includeSynonyms: false, resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }],
  });
  // createTopics answers false, without an error, for a topic that exists.
  const again = (await admin.createTopics({ topics: [wanted] })) ? 0 : 36;
  const bad = await refusal(() =>
    admin.createTopics({ topics: [{ ...wanted, topic: `${topic}-bad`, configEntries: [{ name: "retention.ms", value: "soon" }] }] }),
  );
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
  let grown = 0;
  await eventually(async () => {
    grown = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
    return grown === 5;
  });
  await admin.deleteTopics({ topics: [topic] });
  const gone = await eventually(async () => !(await admin.listTopics()).includes(topic));
  await admin.disconnect();
  console.log(JSON.stringify({
    listed, partitions: described.partitions.length, factor: described.partitions[0].replicas.length,
    retention_ms: configs.resources[0].configEntries[0].configValue,
    again, bad: bad.code, bad_message: bad.message, grown, gone,
  }));
}

main().catch((error) => { console.error(error); process.exit(1); });
