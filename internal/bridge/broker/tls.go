package broker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
)

// TakeTLS removes the parameters tls and ca, and returns the TLS configuration; nil means no TLS.
func (a *Address) TakeTLS() (*tls.Config, error) {
	text, file := a.Take("tls"), a.Take("ca")
	on := file != ""
	if text != "" {
		var err error
		if on, err = strconv.ParseBool(text); err != nil {
			return nil, fmt.Errorf("tls must be true or false, is %q", text)
		}
	}
	if !on {
		return nil, nil //nolint:nilnil // no TLS
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if file != "" {
		pem, err := os.ReadFile(file) //nolint:gosec // a file given by the operator
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s has no certificate in PEM", file)
		}
	}
	return cfg, nil
}
