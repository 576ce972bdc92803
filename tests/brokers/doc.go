// Package brokers tests how badged ingests from NATS JetStream and Kafka, against
// servers that run in the process of the tests.
package brokers
