// A topic by its name alone, as most programs with kafkajs create them: counts of -1 in CreateTopics v3.
// Usage: node defaults.js BOOTSTRAP TOPIC; prints the topic's partitions and replicas as one line of JSON.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 } });

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic }], waitForLeaders: true });
  const { partitions } = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0];
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log(JSON.stringify({ partitions: partitions.length, factor: partitions[0].replicas.length }));
}

main().catch((error) => { console.error(error); process.exit(1); });
