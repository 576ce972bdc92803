package rig

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sort"
)

// The generated traffic is about the size of CollegeMsg, a public recording in
// the Stanford Large Network Dataset Collection: 59,835 messages among 1,899
// users.
const (
	generatedMessages = 60_000
	generatedUsers    = 1_900

	// newPair is the share of messages that start a conversation, answers the
	// share of the others that answer the last message.
	newPair = 0.23
	answers = 0.6
)

// GenerateTraffic writes lines SRC DST UNIXTS, the same ones every time. Users and
// conversations are heavy-tailed: a user's activity falls with the rank (Zipf),
// and a conversation gets the next message with a probability that grows with its
// messages (preferential attachment).
func GenerateTraffic(path string, messages int) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // a path of our own
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same traffic every time
	users := newZipf(generatedUsers, 0.8)

	type pair struct{ last, other int } // last sent the last message
	var sent []*pair                    // the pair of each message so far
	at := 1_082_040_961
	for range messages {
		var p *pair
		if len(sent) == 0 || random.Float64() < newPair {
			src := users.draw(random)
			dst := users.draw(random)
			for dst == src {
				dst = users.draw(random)
			}
			p = &pair{last: src, other: dst}
		} else {
			p = sent[random.IntN(len(sent))]
			if random.Float64() < answers {
				p.last, p.other = p.other, p.last
			}
		}
		sent = append(sent, p)
		at += int(random.ExpFloat64() * 278) // seconds: half a year in all
		if _, err := fmt.Fprintf(w, "%d %d %d\n", p.last+1, p.other+1, at); err != nil {
			return err
		}
	}
	return w.Flush()
}

// zipf draws numbers from 0 to n-1, number k with a weight of 1/(k+1)^s.
type zipf struct{ cumulated []float64 }

func newZipf(n int, s float64) zipf {
	z := zipf{make([]float64, n)}
	var sum float64
	for k := range z.cumulated {
		sum += math.Pow(float64(k+1), -s)
		z.cumulated[k] = sum
	}
	return z
}

func (z zipf) draw(random *rand.Rand) int {
	return sort.SearchFloat64s(z.cumulated, random.Float64()*z.cumulated[len(z.cumulated)-1])
}
