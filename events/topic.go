package events

import (
	"fmt"

	"github.com/badged/badged/internal/log/eventlog"
)

// PartitionOfTopic returns the partition that a topic belongs to. It is the inverse of [Topic].
// It fails if the partition has no users, for example because it was split.
func (l *Log) PartitionOfTopic(topic string) (int, error) {
	layout := l.Layout()
	for partition := range eventlog.PartitionNumbers {
		if Topic(partition) != topic {
			continue
		}
		if layout.Lives(partition) {
			return partition, nil
		}
		if split := layout.Split(partition); split != "" {
			return 0, fmt.Errorf("there is no topic %q any more: %s", topic, split)
		}
	}
	living := layout.Living()
	return 0, fmt.Errorf("there is no topic %q: the log has %s to %s", topic, Topic(living[0]), Topic(living[len(living)-1]))
}
