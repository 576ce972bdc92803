package config

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// passwordFile is the URL parameter that names a file with the password. The file may be, for
// example, a mounted Secret of Kubernetes.
const passwordFile = "password_file"

// renewPassword makes each new connection read the password again, so that the password can change
// while the process runs. The password is in the file that the URL names as password_file. Without
// password_file, pgx looks for the password elsewhere, such as in the file of PGPASSFILE.
// renewPassword fails if the password cannot be read now.
func renewPassword(cfg *pgx.ConnConfig, url string) error {
	file := cfg.RuntimeParams[passwordFile]
	delete(cfg.RuntimeParams, passwordFile)
	read := func() (string, error) {
		if file != "" {
			return readPassword(file)
		}
		again, err := pgconn.ParseConfig(url)
		if err != nil {
			return "", fmt.Errorf("read the settings of the connection again: %w", err)
		}
		return again.Password, nil
	}
	var err error
	if cfg.Password, err = read(); err != nil {
		return err
	}
	cfg.AfterNetConnect = func(_ context.Context, own *pgconn.Config, conn net.Conn) (net.Conn, error) {
		var err error
		own.Password, err = read() // changes only this connection, since pgx copies the configuration
		return conn, err
	}
	return nil
}

// readPassword returns the password in a file, without the line ending.
func readPassword(file string) (string, error) {
	b, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return "", fmt.Errorf("%s: %w", passwordFile, err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n\x00") {
		return "", fmt.Errorf("%s: %s must hold one line, the password", passwordFile, file)
	}
	return password, nil
}
