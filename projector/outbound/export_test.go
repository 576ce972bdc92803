package outbound

import "context"

// Measure sets the metrics of a partition at once.
func (n *Notifier) Measure(ctx context.Context, partition int) error {
	return n.measurePartition(ctx, partition)
}
