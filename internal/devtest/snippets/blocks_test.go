package snippets

import (
	"os"
	"strings"
	"testing"

	"github.com/badged/badged/internal/devtest/source"
)

// readBy names, for the blocks of a language on a page, or on all pages (""), the file of the
// tests that run, compile or check them, and what it contains: the name of the test, or how it
// finds the blocks.
var readBy = map[[2]string][2]string{
	{"", "sh"}:                                {"internal/cli/docsshell_test.go", "TestShellInDocs"},
	{"", "ts"}:                                {"web/samples.mjs", "tsx?"},
	{"", "tsx"}:                               {"web/samples.mjs", "tsx?"},
	{"", "csv"}:                               {"internal/bridge/importing/reader_test.go", "TestFilesOfThePages"},
	{"", "swift"}:                             {".ci/swift", "swift"},
	{"docs/clients-mobile.md", "java"}:        {"tests/java_test.go", "javaOfDocs"},
	{"web/java/README.md", "java"}:            {"tests/java_test.go", "javaOfDocs"},
	{"docs/push.md", "java"}:                  {"tests/java_test.go", "javaOfDocs"},
	{"docs/clients-web.md", "html"}:           {"web/browser/sdk.test.mjs", "clients-web.md"},
	{"docs/howto/show-a-badge.md", "html"}:    {"web/browser/sdk.test.mjs", "show-a-badge.md"},
	{"docs/publishing.md", "go"}:              {"events/howto_test.go", "TestGoOfThePages"},
	{"docs/testing.md", "go"}:                 {"events/howto_test.go", "TestGoOfThePages"},
	{"docs/testing.md", "js"}:                 {"tests/readme_test.go", "TestPagesAreFollowed"},
	{"docs/testing.md", "python"}:             {"tests/readme_test.go", "TestPagesAreFollowed"},
	{"docs/howto/show-a-badge.md", "js"}:      {"tests/readme_test.go", "TestPagesAreFollowed"},
	{"docs/push.md", "js"}:                    {"tests/pushsamples_test.go", "push.md"},
	{"web/python/README.md", "python"}:        {"tests/publishing_test.go", "python"},
	{"docs/publishing.md", "sql"}:             {"tests/readme_test.go", "TestRequestsOfThePages"},
	{"docs/postgres.md", "sql"}:               {"internal/cli/outputs_test.go", "FROM badged.unread"},
	{"docs/rooms.md", "sql"}:                  {"tests/roomevents_test.go", "TestRoomsPage"},
	{"docs/archiving.md", "sql"}:              {"tests/archive_test.go", "pg_current_xact_id()"},
	{"docs/brokers.md", "sql"}:                {"tests/tail_test.go", "forget_tail"},
	{"docs/access.md", "yaml"}:                {"internal/server/keyring/ring_test.go", "TestFileOfThePage"},
	{"docs/getting-started.md", "yaml"}:       {"internal/server/config/file_test.go", "TestFileOfThePage"},
	{"docs/deploying.md", "yaml"}:             {"internal/deploy/monitoring_test.go", "TestConfigurationOfPrometheus"},
	{"docs/postgres.md", "ini"}:               {"tests/pgbouncer_test.go", "TestPgBouncerInSessionMode"},
	{"docs/howto/production.md", "sql"}:       {"tests/roles_test.go", "func granted"},
	{"web/element/README.md", "html"}:         {"web/browser/packages.test.mjs", "element/README.md"},
	{"docs/testing.md", "yaml"}:               {"internal/cli/docsshell_test.go", "TestCommandsInFilesOfDocs"},
	{"README.md", "json"}:                     {"internal/server/app/reference_test.go", "TestAnswersOfThePages"},
	{"docs/http-api.md", "json"}:              {"internal/server/app/reference_test.go", "TestAnswersOfThePages"},
	{"docs/webhooks.md", "json"}:              {"internal/operations/webhookfile_test.go", "TestDeclaredWebhooksOfThePage"},
	{"docs/push.md", "json"}:                  {"internal/notify/push/apps_test.go", "TestConfigurationsOfThePages"},
	{"docs/importing.md", "json"}:             {"internal/bridge/importing/reader_test.go", "TestFilesOfThePages"},
	{"docs/clients.md", "json"}:               {"internal/server/app/reference_test.go", "TestPagesShowWhatIsDescribed"},
	{"docs/assistants.md", "json"}:            {"internal/cli/docsshell_test.go", "TestCommandsInFilesOfDocs"},
	{"docs/howto/closed-phone.md", "json"}:    {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/howto/edit-and-delete.md", "json"}: {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/howto/large-groups.md", "json"}:    {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/howto/mute.md", "json"}:            {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/howto/read-and-unread.md", "json"}: {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/howto/show-a-badge.md", "json"}:    {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/nesting.md", "json"}:               {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/publishing.md", "json"}:            {"events/howto_test.go", "TestEventsOfThePages"},
	{"docs/testing.md", "json"}:               {"events/howto_test.go", "TestEventsOfThePages"},
}

// unread are blocks that no test reads, with the reason.
var unread = map[[2]string]string{
	{"docs/clients-mobile.md", "json"}: "what a backend sends to APNs itself; badged neither reads nor writes it",
}

// Every block with a language is read by a test, or has a reason.
func TestEveryBlockIsRead(t *testing.T) {
	used := map[[2]string]bool{}
	for page, text := range Pages(t) {
		for _, found := range fence.FindAllStringSubmatch(text, -1) {
			language := found[2]
			if language == "" { // see TestEveryOutputIsCompared
				continue
			}
			all, one := [2]string{"", language}, [2]string{page, language}
			switch {
			case readBy[one] != [2]string{}, unread[one] != "":
				used[one] = true
			case readBy[all] != [2]string{}:
				used[all] = true
			default:
				t.Errorf("no test reads the %s of %s: let one read it, and add it to readBy", language, page)
			}
		}
	}
	for block, by := range readBy {
		text, err := os.ReadFile(source.Path(by[0]))
		if err != nil || !strings.Contains(string(text), by[1]) {
			t.Errorf("%s has no %s, which reads the %s of %s: %v", by[0], by[1], block[1], block[0], err)
		}
		if !used[block] {
			t.Errorf("%s has no %s", block[0], block[1])
		}
	}
	for block := range unread {
		if !used[block] {
			t.Errorf("%s has no %s", block[0], block[1])
		}
	}
}
