// Create a topic, print the reason if it is refused, and print where its replicas are, with franz-go.
//
//	go run . 127.0.0.1:9092 pay.orders
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	retention := "86400000"

	created, err := admin.CreateTopic(ctx, 3, 3, map[string]*string{"retention.ms": &retention}, topic)
	if created.Err != nil {
		fmt.Printf("refused %s: %v: %s\n", topic, created.Err, created.ErrMessage)
	} else if err != nil {
		log.Fatal(err)
	} else {
		fmt.Printf("created %s\n", topic)
	}
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		log.Fatal(err)
	}
	for _, one := range topics[topic].Partitions.Sorted() {
		replicas := strings.ReplaceAll(fmt.Sprint(one.Replicas), " ", ", ")
		fmt.Printf("partition %d leader %d replicas %s\n", one.Partition, one.Leader, replicas)
	}
}
