// Receives webhooks of badged and prints what it could verify.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func main() {
	if err := receive(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func receive() error {
	verifier, err := standardwebhooks.NewWebhook(os.Getenv("WEBHOOK_SECRET"))
	if err != nil {
		return err
	}
	server := http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), ReadTimeout: 10 * time.Second}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions { // badged asks for permission
			w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
			w.Header().Set("WebHook-Allowed-Rate", "*")
			return
		}
		// The signature covers these bytes: verify before decoding.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "cannot read the body", http.StatusBadRequest)
			return
		}
		if err := verifier.Verify(body, r.Header); err != nil {
			http.Error(w, "the signature is wrong", http.StatusUnauthorized)
			return
		}
		fmt.Printf("%s %s\n", r.Header.Get("webhook-id"), body)
		w.WriteHeader(http.StatusNoContent)
	})
	return server.ListenAndServe()
}
