package tests

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// listener is a client for server-sent events in Python that uses only HTTP and JSON. It reads a
// stream until its user has read everything, ends the stream, and resumes.
const listener = `
import http.client, json, sys, urllib.request

address, token = sys.argv[1:]
authorization = {"Authorization": "Bearer " + token}

def listen(last_id):
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/v1/sse", headers=authorization | ({"Last-Event-ID": last_id} if last_id else {}))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.getheader("Content-Type") == "text/event-stream"
    event = {}
    for line in response:
        line = line.decode().rstrip("\n")
        if line:
            field, _, value = line.partition(": ")
            event[field] = value
        elif "data" in event:
            yield event["id"], json.loads(event["data"])
            event = {}
    assert False, "the stream has ended"

for last_id, frame in listen(None):
    print(frame["t"], frame["total"], flush=True)
    if frame["total"] == 2:
        command = {"t": "read", "id": "0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10", "conversation_id": "tea", "up_to_seq": 2}
        request = urllib.request.Request("http://" + address + "/v1/commands", json.dumps(command).encode(), authorization)
        print(urllib.request.urlopen(request).read().decode().strip(), flush=True)
    elif frame["t"] == "changes":
        break

for last_id, frame in listen(last_id):
    print(frame["t"], frame["total"], len(frame["conversations"]), flush=True)
    break
`

func TestEventStreamWithPlainHTTP(t *testing.T) {
	t.Parallel()
	p := serve(t, newDatabase(t))
	total(t, p, "eve", p.mustPost(delivered("tea", 1, `"eve"`), delivered("tea", 2, `"eve"`)))
	cmd := exec.CommandContext(t.Context(), "python3", "-c", listener, strings.TrimPrefix(p.url, "http://"), token(t, "eve"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	const want = `snapshot 2
{"t":"ok","id":"0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10"}
changes 0
changes 0 0
`
	if string(out) != want {
		t.Errorf("the client saw\n%swant\n%s", out, want)
	}
}
