// What kafkajs reads of offsets and groups where there are no records.
// Usage: node offsets.js BOOTSTRAP TOPIC; prints one line of JSON.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 } });

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
  const found = {
    offsets: await admin.fetchTopicOffsets(topic),
    at: await admin.fetchTopicOffsetsByTimestamp(topic, 1700000000000),
    committed: await admin.fetchOffsets({ groupId: "nobody", topics: [topic] }),
    listed: (await admin.listGroups()).groups,
    described: (await admin.describeGroups(["nobody"])).groups.map(({ groupId, state }) => ({ groupId, state })),
  };
  await admin.disconnect();
  console.log(JSON.stringify(found));
}

main().catch((error) => { console.error(error); process.exit(1); });
