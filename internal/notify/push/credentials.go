package push

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// signedEarly is subtracted from the present time to get the time of issue of a token for a vendor.
// A vendor whose clock is slow would refuse a token with a time of issue in the future.
const signedEarly = 10 * time.Second

// tls returns the TLS settings for connections to the vendor's server.
func (s *server) tls(dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CAFile == "" {
		return config, nil
	}
	text, err := os.ReadFile(path(dir, s.CAFile))
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca_file: %s has no certificate in PEM", s.CAFile)
	}
	return config, nil
}

// loadKey returns the first private key in the text of a PEM file. Callers put the name of the file
// before the text of the error.
func loadKey(text []byte) (any, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("has no private key in PEM")
		}
		switch block.Type {
		case "PRIVATE KEY":
			return x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("is encrypted: `openssl pkcs8 -topk8 -nocrypt` removes the passphrase")
		}
	}
}

// loadECKey reads a private key of the curve P-256 from a file.
func loadECKey(file string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(file) //nolint:gosec // G304: the operator names it
	if err != nil {
		return nil, err
	}
	key, err := loadKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s: want a private key of the curve P-256", file)
	}
	return ec, nil
}

func loadServiceAccount(file string) (account serviceAccount, _ *rsa.PrivateKey, _ error) {
	text, err := os.ReadFile(file) //nolint:gosec // G304: the operator names it
	if err != nil {
		return account, nil, err
	}
	// Accept unknown fields: Google may add fields that sending does not need.
	if err := json.Unmarshal(text, &account); err != nil {
		return account, nil, fmt.Errorf("%s: want the JSON file that Google gives: %w", file, atIndex(text, err))
	}
	if account.Type != "service_account" {
		return account, nil, fmt.Errorf("%s: type is %q, want service_account", file, account.Type)
	}
	for field, value := range map[string]string{
		"project_id": account.ProjectID, "client_email": account.ClientEmail,
		"private_key_id": account.PrivateKeyID, "token_uri": account.TokenURI,
	} {
		if value == "" {
			return account, nil, fmt.Errorf("%s: %s is missing", file, field)
		}
	}
	if !projectID.MatchString(account.ProjectID) {
		return account, nil, fmt.Errorf("%s: project_id: %q is no id of a project", file, account.ProjectID)
	}
	if _, err := baseURL(account.TokenURI); err != nil {
		return account, nil, fmt.Errorf("%s: token_uri must be an https URL", file)
	}
	key, err := loadKey([]byte(account.PrivateKey))
	if err != nil {
		return account, nil, fmt.Errorf("%s: private_key %w", file, err)
	}
	private, ok := key.(*rsa.PrivateKey)
	if !ok {
		return account, nil, fmt.Errorf("%s: private_key must be an RSA key", file)
	}
	if _, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{}).SignedString(private); err != nil {
		return account, nil, fmt.Errorf("%s: private_key cannot sign: %w", file, err) // for example a key that is too short
	}
	return account, private, nil
}

// userID is the object identifier of the attribute in which Apple stores the app's bundle id, in
// the subject of a certificate.
var userID = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}

// loadCertificate reads the certificate that authenticates the sender to APNs. It fails if the
// certificate is not valid now, or if topic does not belong to the app of the certificate.
func loadCertificate(file, keyFile, topic string) (tls.Certificate, error) {
	if keyFile == "" {
		keyFile = file // one file may contain the certificate and the key
	}
	pair, err := tls.LoadX509KeyPair(file, keyFile)
	if err != nil {
		return pair, fmt.Errorf("%s: %w", file, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return pair, fmt.Errorf("%s: is valid from %s to %s only", file, pair.Leaf.NotBefore.Format(time.DateOnly), pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	for _, name := range pair.Leaf.Subject.Names {
		if app, ok := name.Value.(string); ok && name.Type.Equal(userID) && topic != app && !strings.HasPrefix(topic, app+".") {
			return pair, fmt.Errorf("%s: is for the app %s, and topic is %s", file, app, topic)
		}
	}
	return pair, nil
}
