package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// openStream opens a stream. If that is refused, stream is nil, and code and pause say how to
// continue, as after bye.
func (c *reference) openStream(ctx context.Context) (stream io.ReadCloser, code int, pause time.Duration) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("BADGED_URL")+"/v1/sse", nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if c.epoch != "" && c.bug != "does not resume" {
		r.Header.Set("Last-Event-ID", c.epoch+":"+strconv.FormatInt(c.version, 10))
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, 0, 0
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, 0, 0
	}
	defer response.Body.Close()
	refusal := problemIn(response)
	switch response.StatusCode {
	case http.StatusUnauthorized:
		code = 4202
	case http.StatusBadGateway:
		if c.bug == "gives up after answers of proxies" {
			for range c.commands { // until the end
			}
			os.Exit(0)
		}
	}
	return nil, code, refusal.pause()
}

// problemIn returns the body of an answer; nil if it is not JSON.
func problemIn(response *http.Response) frame {
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	f, err := decodeFrame(b)
	if err != nil {
		return nil
	}
	return f
}

// pause is the retry_ms of a problem.
func (f frame) pause() time.Duration {
	number, _ := f["retry_ms"].(json.Number)
	ms, _ := number.Int64()
	return time.Duration(ms) * time.Millisecond
}

// readStream reads frames of a stream until it ends.
func (c *reference) readStream(ctx context.Context, stream io.Reader, frames chan<- frame, end chan<- int) {
	tell := func(f frame) {
		select {
		case frames <- f:
		case <-ctx.Done():
		}
	}
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			end <- 0
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if c.bug != "knows one line end" {
			line = strings.TrimSuffix(line, "\r")
		} else if strings.HasSuffix(line, "\r") {
			continue
		}
		if data, ok := strings.CutPrefix(line, "data:"); ok {
			f, err := decodeFrame([]byte(data))
			if err != nil {
				panic(err)
			}
			tell(f)
		} else if c.bug != "does not count comments" {
			tell(frame{"t": "comment"})
		}
	}
}

// post sends a command, and sends its answer to frames in the form of a frame.
func (c *reference) post(ctx context.Context, f frame, token string, frames chan<- frame) {
	answer := frame{"t": "error", "id": f["id"], "code": "unavailable", "retry_ms": json.Number("50")}
	defer func() {
		select {
		case frames <- answer:
		case <-ctx.Done():
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("BADGED_URL")+"/v1/commands", bytes.NewReader(f.encode()))
	if err != nil {
		panic(err)
	}
	if c.bug != "sends commands without a token" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		if c.bug == "ends the stream if an answer is lost" {
			answer = frame{"t": "bye", "code": 0}
		}
		return
	}
	defer response.Body.Close()
	found := problemIn(response)
	switch {
	case response.StatusCode == http.StatusOK:
		answer = found
	case found == nil && c.bug == "takes proxies for the server":
		answer = frame{"t": "error", "id": f["id"], "code": "invalid"}
	case found != nil:
		answer = frame{"t": "error", "id": f["id"]}
		maps.Copy(answer, frame{"code": found["code"]})
		if ms, ok := found["retry_ms"]; ok {
			answer["retry_ms"] = ms
		}
	}
}

// stored is the content of the client's file.
type stored struct {
	Epoch         string
	Version       int64
	Total         json.Number
	Unread        any
	Conversations map[string]frame
	Categories    frame
	Levels        frame
	Queue         []frame
}

func (c *reference) file() string {
	name := os.Getenv("BADGED_USER")
	if c.bug == "stores for any user" {
		name = "state"
	}
	return filepath.Join(c.folder, name+".json")
}

// store writes the state that the next process of the client loads.
func (c *reference) store() {
	if c.folder == "" || c.bug == "stores when it ends" {
		return
	}
	kept := stored{c.epoch, c.version, c.total, c.unread, c.conversations, c.categories, c.levels, c.queue}
	switch c.bug {
	case "stores no commands":
		kept.Queue = nil
	case "stores no levels":
		kept.Levels = frame{}
	case "keeps stored commands":
		kept.Queue = c.issued
	}
	b, err := json.Marshal(kept)
	if err != nil {
		panic(err)
	}
	next := c.file() + ".next"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(next, c.file()); err != nil {
		panic(err)
	}
}

// load reads the state that the previous process stored, and prints it.
func (c *reference) load() {
	if c.folder == "" {
		return
	}
	b, err := os.ReadFile(c.file())
	if err != nil {
		return
	}
	var kept stored
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&kept); err != nil {
		if c.bug == "trusts its files" {
			panic(err)
		}
		return
	}
	c.queue, c.issued = kept.Queue, kept.Queue
	if c.bug == "makes new ids when it starts" {
		for _, f := range c.queue {
			f["id"] = f.text("id") + "-again"
		}
	}
	if kept.Epoch == "" || c.bug == "stores no state" {
		return
	}
	c.epoch, c.version, c.total, c.unread, c.conversations = kept.Epoch, kept.Version, kept.Total, kept.Unread, kept.Conversations
	c.categories, c.levels = kept.Categories, kept.Levels
	if c.bug == "stores its epoch once" {
		c.epoch = "e1"
	}
	c.show()
}
