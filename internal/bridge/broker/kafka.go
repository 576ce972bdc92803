package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// KafkaTimeout bounds each connection attempt and each request to a Kafka broker.
const KafkaTimeout = 5 * time.Second

// Kafka returns the options to connect to the brokers of a URL. It removes the parameters sasl, tls
// and ca.
func Kafka(a *Address) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(a.Hosts...), kgo.ClientID("badged"), kgo.DialTimeout(KafkaTimeout)}
	encryption, err := a.TakeTLS()
	if err != nil {
		return nil, err
	}
	if encryption != nil {
		options = append(options, kgo.DialTLSConfig(encryption))
	}
	mechanism := a.Take("sasl")
	switch {
	case a.User == "" && mechanism == "":
	case a.User == "":
		return nil, errors.New("sasl needs USER:PASSWORD@")
	case mechanism == "" || mechanism == "plain":
		options = append(options, kgo.SASL(plain.Auth{User: a.User, Pass: a.Password}.AsMechanism()))
	case mechanism == "scram-sha-256":
		options = append(options, kgo.SASL(scram.Auth{User: a.User, Pass: a.Password}.AsSha256Mechanism()))
	case mechanism == "scram-sha-512":
		options = append(options, kgo.SASL(scram.Auth{User: a.User, Pass: a.Password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("sasl must be plain, scram-sha-256 or scram-sha-512, is %q", mechanism)
	}
	return options, nil
}

// KafkaTopics returns the metadata of topics, in the given order. If a topic does not exist, the
// error says what to do.
func KafkaTopics(ctx context.Context, client *kgo.Client, hosts []string, topics ...string) ([]kmsg.MetadataResponseTopic, error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, t)
	}
	answer, err := request.RequestWith(ctx, client)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the broker closes the connection; are user, password, sasl and tls right? (%w)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %s: %w", strings.Join(hosts, ", "), err)
	}
	var all []kmsg.MetadataResponseTopic
	for _, topic := range topics {
		i := slices.IndexFunc(answer.Topics, func(t kmsg.MetadataResponseTopic) bool { return t.Topic != nil && *t.Topic == topic })
		if i < 0 {
			return nil, fmt.Errorf("there is no topic %s; create it", topic)
		}
		switch err := kerr.ErrorForCode(answer.Topics[i].ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("there is no topic %s; create it", topic)
		case err != nil:
			return nil, fmt.Errorf("read the topic %s of Kafka: %w", topic, err)
		}
		all = append(all, answer.Topics[i])
	}
	return all, nil
}
