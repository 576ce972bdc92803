package config

import "slices"

// Brokers configures the brokers from which events are read.
type Brokers struct {
	From []string `help:"Brokers to read events from: kafka://HOST:9092/TOPIC, nats://HOST:4222/STREAM, redis://HOST:6379/0?stream=STREAM. Repeat the flag, or separate URLs by spaces. Default: none." placeholder:"URL" sep:" "`
}

// NeedsBrokers reports whether the only role of this process is ingest. Then the process does not
// start unless every broker can be read. A process with other roles starts without the brokers.
func (s *Server) NeedsBrokers() bool {
	return len(s.Roles) > 0 && !slices.ContainsFunc(s.Roles, func(r Role) bool { return r != RoleIngest })
}
