package tests

import (
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/vendors"
)

// With an invalid contact, every push to Safari would fail with BadJwtToken. So the server refuses
// the setting when it starts.
func unreachableContact(t *testing.T) {
	service, database := vendors.NewWebPush(t), newDatabase(t)
	for subject, isRefused := range map[string]bool{
		"mailto:ops@localhost": true, "mailto:ops@chat.local": true, "https://localhost/contact": true, "mailto:ops@chat.example": false,
	} {
		entry := service.Entry()
		entry["subject"] = subject
		file := vendors.WriteConfig(t, map[string]map[string]any{"web": entry})
		commands := [][]string{{"config", "check"}}
		if isRefused { // with valid settings the command would run on
			commands = append(commands, []string{"serve", "--listen=127.0.0.1:0"})
		}
		for _, args := range commands {
			args = append(args, "--database-url="+database, "--publisher-keys=chat="+publisherKey, "--push-config="+file)
			stdout, stderr, code := command(t, args...)
			said := strings.Contains(stdout+stderr, `app "web": subject: `) && strings.Contains(stdout+stderr, "Apple refuses")
			if said != isRefused || (code != 0) != isRefused {
				t.Errorf("%s with the subject %s exits with %d:\n%s%s", args[0], subject, code, stdout, stderr)
			}
		}
	}
}
