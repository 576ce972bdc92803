package tests

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// A line from an assistant that is no valid message is answered with an error, and the session
// continues.
func TestMalformedLinesOfAnAssistant(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), binary, withShards([]string{"mcp", "--database-url=" + newDatabase(t)})...)
	cmd.Env = environment()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said := &output{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	ask := func(line, want string) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatalf("%v; %s", err, said)
		}
		if want == "" {
			return
		}
		if answer, err := answers.ReadString('\n'); err != nil || !strings.Contains(answer, want) {
			t.Fatalf("%.80q is answered with %q, %v, want %s; %s", line, answer, err, want, said)
		}
	}
	const notJSON, noMessage = `"id":null,"error":{"code":-32700,`, `"id":null,"error":{"code":-32600,`
	ask("hello?", notJSON)
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, `"id":1,"result"`)
	ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
	for i, bad := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":2,"method":"tools/list"`, notJSON},
		{"\x00\xff\xfe", notJSON},
		{`{} {}`, notJSON},
		{`{}`, noMessage},
		{`null`, noMessage},
		{`[]`, noMessage},
		{`[{"jsonrpc":"2.0","id":2,"method":"tools/list"}]`, noMessage},
		{`{"jsonrpc":"1.0","id":2,"method":"tools/list"}`, noMessage},
		{`{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, noMessage},
		{`{"jsonrpc":"2.0","id":2,"method":5}`, noMessage},
		{strings.Repeat("x", 3<<20), noMessage},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"lag","arguments":5}}`, `"id":7,`},
	} {
		ask(bad.line, bad.want)
		ask("", "") // an empty line gets no answer
		if i%4 == 3 {
			ask(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"lag","arguments":{}}}`, `"partitions"`)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(answers)
	if err := cmd.Wait(); err != nil || len(rest) > 0 {
		t.Errorf("it ends with %v and %q; %s", err, rest, said)
	}
	if err != nil {
		t.Error(err)
	}
}
