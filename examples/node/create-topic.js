// Create a topic, print the reason if it is refused, and print where its replicas are. Needs kafkajs.
//
//     node create-topic.js 127.0.0.1:9092 pay.orders
const { Kafka, logLevel } = require("kafkajs");

async function main([bootstrap, topic]) {
  const admin = new Kafka({ clientId: "example", brokers: [bootstrap], logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  try {
    const configEntries = [{ name: "retention.ms", value: "86400000" }];
    const wanted = { topic, numPartitions: 3, replicationFactor: 3, configEntries };
    try {
      const created = await admin.createTopics({ topics: [wanted], timeout: 30000, waitForLeaders: false });
      // kafkajs has no message for a topic that is there: it returns false.
      console.log(created ? `created ${topic}` : `refused ${topic}: TOPIC_ALREADY_EXISTS`);
    } catch (error) {
      const cause = error.errors ? error.errors[0] : error;
      console.log(`refused ${topic}: ${cause.type}: ${cause.message}`);
    }
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    for (const one of topics[0].partitions.sort((a, b) => a.partitionId - b.partitionId)) {
      console.log(`partition ${one.partitionId} leader ${one.leader} replicas [${one.replicas.join(", ")}]`);
    }
  } finally {
    await admin.disconnect();
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
