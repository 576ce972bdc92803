package demo

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Keys are the credentials of a demo. They are stored in a file, so that a key that a user has
// copied from the page remains valid after a restart.
type Keys struct {
	PublisherKey string `json:"publisher_key"`
	JWTSecret    string `json:"jwt_secret"`
	AdminKey     string `json:"admin_key"`
}

// LoadKeys reads the keys from a file. If the file does not exist, it creates new keys and stores
// them.
func LoadKeys(file string) (Keys, error) {
	b, err := os.ReadFile(file) //nolint:gosec // the demo's own file
	if errors.Is(err, fs.ErrNotExist) {
		return Keys{PublisherKey: rand.Text(), JWTSecret: rand.Text() + rand.Text(), AdminKey: rand.Text()}.store(file)
	}
	if err != nil {
		return Keys{}, fmt.Errorf("read the demo's keys: %w", err)
	}
	var k Keys
	if err := json.Unmarshal(b, &k); err != nil || k.PublisherKey == "" || k.JWTSecret == "" || k.AdminKey == "" {
		return Keys{}, fmt.Errorf("%s holds no keys; delete the file and new keys are created", file)
	}
	return k, nil
}

func (k Keys) store(file string) (Keys, error) {
	b, err := json.MarshalIndent(k, "", "  ") //nolint:gosec // storing the keys is the purpose
	if err != nil {
		return Keys{}, fmt.Errorf("encode the demo's keys: %w", err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o600); err != nil {
		return Keys{}, fmt.Errorf("store the demo's keys: %w", err)
	}
	return k, nil
}
