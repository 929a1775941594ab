// What every client's scenario does, with franz-go's kadm. Usage: scenario BOOTSTRAP TOPIC; prints one line of JSON.
// KAFKA_TOKEN is a token for OAUTHBEARER. With a third argument it tries every request that can change the topic, and prints the error code of each.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
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
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(10 * time.Millisecond)}
	if token := os.Getenv("KAFKA_TOKEN"); token != "" {
		options = append(options, kgo.SASL(oauth.Auth{Token: token}.AsMechanism()))
	}
	client := must(kgo.NewClient(options...))
	defer client.Close()
	admin := kadm.NewClient(client)
	if len(os.Args) > 3 {
		fmt.Println(string(must(json.Marshal(changes(ctx, admin, topic)))))
		return
	}
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

func changes(ctx context.Context, admin *kadm.Client, topic string) map[string]int16 {
	codes := map[string]int16{}
	_, err := admin.CreateTopic(ctx, 9, 1, nil, topic+"-new")
	codes["CreateTopics"] = code(err)
	auto := must(kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.AllowAutoTopicCreation()))
	defer auto.Close()
	quick, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	codes["Metadata"] = code(auto.ProduceSync(quick, &kgo.Record{Topic: topic + "-auto"}).FirstErr())
	codes["CreatePartitions"] = code(must(admin.UpdatePartitions(ctx, 9, topic)).Error())
	forever := "-1"
	retention := []kadm.AlterConfig{{Name: "retention.ms", Value: &forever}}
	codes["AlterConfigs"] = code(must(admin.AlterTopicConfigsState(ctx, retention, topic))[0].Err)
	codes["IncrementalAlterConfigs"] = code(must(admin.AlterTopicConfigs(ctx, retention, topic))[0].Err)
	defaults := []kadm.AlterConfig{{Name: "log.retention.ms", Value: &forever}}
	inSync := "2"
	all := append(defaults, kadm.AlterConfig{Name: "min.insync.replicas", Value: &inSync})
	codes["AlterConfigs of brokers"] = code(must(admin.AlterBrokerConfigsState(ctx, all))[0].Err)
	codes["IncrementalAlterConfigs of brokers"] = code(must(admin.AlterBrokerConfigs(ctx, defaults))[0].Err)
	var moved kadm.AlterPartitionAssignmentsReq
	moved.Assign(topic, 0, []int32{3})
	codes["AlterPartitionReassignments"] = code(must(admin.AlterPartitionAssignments(ctx, moved)).Error())
	first := kadm.TopicsSet{}
	first.Add(topic, 0)
	codes["ElectLeaders"] = code(must(admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, first))[topic][0].Err)
	codes["DeleteTopics"] = code(must(admin.DeleteTopics(ctx, topic)).Error())
	return codes
}
