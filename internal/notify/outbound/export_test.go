package outbound

import (
	"context"
	"time"
)

// Measure sets the metrics of a partition at once.
func (n *Notifier) Measure(ctx context.Context, partition int) error {
	return n.measurePartition(ctx, partition)
}

// SetSilence sets after how long a silent owner is replaced.
func (cfg *NotifierConfig) SetSilence(d time.Duration) { cfg.silence = d }

// Drain makes due what can be in a partition, once.
func (n *Notifier) Drain(ctx context.Context, partition int) error {
	_, err := n.worker(partition).drain(ctx)
	return err
}

// DeleteOldAlerts returns the statement that does so in a partition.
func DeleteOldAlerts(partition int) string { return statements.Of(partition, "delete old alerts") }

// MeasureStatement returns the statement that measures a partition.
func MeasureStatement(partition int) string { return statements.Of(partition, "measure") }
