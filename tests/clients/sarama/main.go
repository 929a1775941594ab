// What programs do with sarama: topics, offsets, a producer, a consumer group, deleted records, configs of a broker.
// Usage: scenario BOOTSTRAP TOPIC; prints one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const records = 20

type seen struct {
	Partitions int    `json:"partitions"`
	Factor     int16  `json:"factor"`
	Retention  string `json:"retention_ms"`
	Newest     int64  `json:"newest"`
	Oldest     int64  `json:"oldest"`
	Consumed   int    `json:"consumed"`
	Committed  int64  `json:"committed"`
	Broker     string `json:"broker_id"`
	Gone       bool   `json:"gone"`
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// Brokers may learn of a change a little after its answer.
func eventually(seen func() bool) bool {
	for range 2000 {
		if seen() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

type group struct {
	count int
	stop  context.CancelFunc
}

func (*group) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*group) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (g *group) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if g.count++; g.count == records {
			g.stop()
		}
	}
	return nil
}

func config(clientID string) *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = clientID
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	return made
}

func consume(bootstrap []string, topic string) int {
	members := must(sarama.NewConsumerGroup(bootstrap, topic, config(topic+"-consumer")))
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	member := &group{stop: stop}
	for ctx.Err() == nil {
		must(0, members.Consume(ctx, []string{topic}, member))
	}
	must(0, members.Close())
	return member.count
}

func main() {
	bootstrap, topic := []string{os.Args[1]}, os.Args[2]
	client := must(sarama.NewClient(bootstrap, config(topic+"-admin")))
	admin := must(sarama.NewClusterAdminFromClient(client))
	defer admin.Close()
	retention := "7200000"
	detail := &sarama.TopicDetail{
		NumPartitions: 1, ReplicationFactor: 2, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	must(0, admin.CreateTopic(topic, detail, false))
	var found seen
	listed := must(admin.ListTopics())[topic]
	found.Partitions, found.Factor = int(listed.NumPartitions), listed.ReplicationFactor
	found.Retention = *listed.ConfigEntries["retention.ms"]

	producer := must(sarama.NewSyncProducer(bootstrap, config(topic+"-producer")))
	for number := range records {
		value := sarama.StringEncoder(fmt.Sprint(number))
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value})
		must(0, err)
	}
	must(0, producer.Close())
	found.Consumed = consume(bootstrap, topic)

	must(0, admin.DeleteRecords(topic, map[int32]int64{0: 5}))
	found.Newest = must(client.GetOffset(topic, 0, sarama.OffsetNewest))
	found.Oldest = must(client.GetOffset(topic, 0, sarama.OffsetOldest))
	offsets := must(admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0}}))
	found.Committed = offsets.GetBlock(topic, 0).Offset
	resource := sarama.ConfigResource{Type: sarama.BrokerResource, Name: "2", ConfigNames: []string{"node.id"}}
	found.Broker = must(admin.DescribeConfig(resource))[0].Value

	must(0, admin.DeleteTopic(topic))
	found.Gone = eventually(func() bool { _, known := must(admin.ListTopics())[topic]; return !known })
	fmt.Println(string(must(json.Marshal(found))))
}
