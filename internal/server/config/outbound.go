package config

// Outbound configures pushes to devices and calls of webhooks.
type Outbound struct {
	PushConfig   string   `help:"JSON file with the apps that get pushes, and their keys at the vendors: see push.md. Default: no pushes." placeholder:"FILE"`
	OutboundKeys []string `help:"Keys that encrypt tokens of devices and secrets of webhooks in the tables: ID=BASE64 of 32 bytes; comma-separated. The first encrypts, all decrypt. Default: they are stored as they are." placeholder:"ID=KEY"`
}
