package config

import "errors"

// Tail configures `badged tail`.
type Tail struct {
	Database    `embed:""`
	ProfileKeys `embed:""`
	To          []string `help:"Brokers to publish to: kafka://HOST:9092/TOPIC, nats://HOST:4222/STREAM?subject=SUBJECT, redis://HOST:6379/0?stream=STREAM. Repeat the flag, or separate URLs by spaces." placeholder:"URL" sep:" "`
}

// Validate implements kong's validation.
func (t Tail) Validate() error {
	err := t.Database.Validate()
	if len(t.To) == 0 {
		err = errors.Join(err, errors.New("--to (BADGED_TO) is required, such as redis://localhost:6379/0?stream=badges"))
	}
	return err
}

// ProfileKeys has the keys of a command whose listener is only for operators.
type ProfileKeys struct {
	AdminKeys []string `help:"Keys of operators, who may take profiles of the process at /debug/pprof/: NAME=SECRET or NAME=sha256:HEX; comma-separated." placeholder:"NAME=KEY"`
}
