// What every client's scenario does, with franz-go's kadm. Usage: scenario BOOTSTRAP TOPIC; prints one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type seen struct {
	Listed      bool   `json:"listed"`
	Partitions  int    `json:"partitions"`
	Factor      int    `json:"factor"`
	RetentionMs string `json:"retention_ms"`
	Again       int16  `json:"again"`
	Bad         int16  `json:"bad"`
	BadMessage  string `json:"bad_message"`
	Grown       int    `json:"grown"`
	Gone        bool   `json:"gone"`
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func code(err error) int16 {
	var of *kerr.Error
	if errors.As(err, &of) {
		return of.Code
	}
	if err != nil {
		return -1
	}
	return 0
}

// Brokers, and gateways, may learn of a change a little after its answer, one later than another.
func eventually(seen func() bool) bool {
	for range 2000 {
		if seen() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := must(kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(10*time.Millisecond)))
	defer client.Close()
	admin := kadm.NewClient(client)
	retention, soon := "7200000", "soon"
	configs := map[string]*string{"retention.ms": &retention}

	created := must(admin.CreateTopic(ctx, 3, 2, configs, topic))
	must(created, created.Err)
	var found seen
	found.Listed = eventually(func() bool { return must(admin.ListTopics(ctx)).Has(topic) })
	eventually(func() bool {
		details := must(admin.ListTopics(ctx, topic))
		found.Partitions = len(details[topic].Partitions)
		found.Factor = details[topic].Partitions.NumReplicas()
		return found.Partitions == 3
	})
	eventually(func() bool {
		described, err := must(admin.DescribeTopicConfigs(ctx, topic)).On(topic, nil)
		for _, config := range described.Configs {
			if config.Key == "retention.ms" {
				found.RetentionMs = config.MaybeValue()
			}
		}
		return err == nil && described.Err == nil
	})
	_, err := admin.CreateTopic(ctx, 3, 2, configs, topic)
	found.Again = code(err)
	bad, err := admin.CreateTopic(ctx, 3, 2, map[string]*string{"retention.ms": &soon}, topic+"-bad")
	found.Bad, found.BadMessage = code(err), bad.ErrMessage
	must(0, must(admin.UpdatePartitions(ctx, 5, topic)).Error())
	eventually(func() bool {
		found.Grown = len(must(admin.ListTopics(ctx, topic))[topic].Partitions)
		return found.Grown == 5
	})
	must(0, must(admin.DeleteTopics(ctx, topic)).Error())
	found.Gone = eventually(func() bool { return !must(admin.ListTopics(ctx)).Has(topic) })
	fmt.Println(string(must(json.Marshal(found))))
}
