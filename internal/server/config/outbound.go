package config

// Outbound configures pushes to devices and calls of webhooks.
type Outbound struct {
	PushConfig   string   `help:"JSON file with the apps that get pushes, and the keys that the vendors gave for them: see push.md. Default: no pushes." placeholder:"FILE"`
	OutboundKeys []string `help:"Keys that encrypt tokens of devices and secrets of webhooks in the tables: ID=BASE64 of 32 bytes; comma-separated. The first key encrypts, all keys decrypt. Default: tokens and secrets are stored in plain text." placeholder:"ID=KEY"`
}
