// Package brokers tests how badged ingests from NATS JetStream and Kafka and publishes to them. The
// brokers run in the process of the tests.
package brokers
