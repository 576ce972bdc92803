package events

import "fmt"

// PartitionOfTopic returns the partition with a topic: it is the inverse of [Topic].
func (l *Log) PartitionOfTopic(topic string) (int, error) {
	for partition := range l.partitions {
		if Topic(partition) == topic {
			return partition, nil
		}
	}
	return 0, fmt.Errorf("there is no topic %q: the log has %s to %s", topic, Topic(0), Topic(l.partitions-1))
}
