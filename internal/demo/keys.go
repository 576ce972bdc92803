package demo

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Keys are the credentials of one demo. They stay the same from one start to
// the next, so that what was pasted once keeps working.
type Keys struct {
	PublisherKey string `json:"publisher_key"`
	JWTSecret    string `json:"jwt_secret"`
	AdminKey     string `json:"admin_key"`
}

// LoadKeys reads the keys from a file, and makes them where there is none.
func LoadKeys(file string) (Keys, error) {
	b, err := os.ReadFile(file) //nolint:gosec // the demo's own file
	if errors.Is(err, fs.ErrNotExist) {
		return Keys{PublisherKey: rand.Text(), JWTSecret: rand.Text() + rand.Text()}.complete(file)
	}
	if err != nil {
		return Keys{}, fmt.Errorf("read the demo's keys: %w", err)
	}
	var k Keys
	if err := json.Unmarshal(b, &k); err != nil || k.PublisherKey == "" || k.JWTSecret == "" {
		return Keys{}, fmt.Errorf("%s holds no keys; delete it to have them made anew", file)
	}
	if k.AdminKey == "" { // those of an earlier release
		return k.complete(file)
	}
	return k, nil
}

// complete adds the admin key and keeps the keys in a file.
func (k Keys) complete(file string) (Keys, error) {
	k.AdminKey = rand.Text()
	b, err := json.MarshalIndent(k, "", "  ") //nolint:gosec // to keep them is what this is for
	if err != nil {
		return Keys{}, fmt.Errorf("encode the demo's keys: %w", err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o600); err != nil {
		return Keys{}, fmt.Errorf("keep the demo's keys: %w", err)
	}
	return k, nil
}
