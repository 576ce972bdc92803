package demo

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// PushApp is the name of the phones' app in the push configuration.
const PushApp = "demo"

// WritePushConfig writes the push configuration for the demo's phones into a folder and returns the
// path of the file. If the folder has no VAPID key yet, it creates one.
func WritePushConfig(dir string) (file string, err error) {
	const keyFile = "vapid.pem"
	if _, err := os.Stat(filepath.Join(dir, keyFile)); errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", fmt.Errorf("make the demo's key for pushes: %w", err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return "", fmt.Errorf("encode the demo's key for pushes: %w", err)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		if err := os.WriteFile(filepath.Join(dir, keyFile), text, 0o600); err != nil {
			return "", fmt.Errorf("store the demo's key for pushes: %w", err)
		}
	}
	text, err := json.MarshalIndent(map[string]any{PushApp: map[string]any{
		"platform": "unifiedpush", "vapid_key_file": keyFile, "subject": "mailto:demo@example.com", "allow_private": true,
	}}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the demo's push configuration: %w", err)
	}
	file = filepath.Join(dir, "push.json")
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("store the demo's push configuration: %w", err)
	}
	return file, nil
}

// PushEndpoint returns the URL of the push service of a demo that listens on the given address.
func PushEndpoint(listening net.Addr) string {
	host, port, err := net.SplitHostPort(listening.String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port) + "/demo/push/"
}
