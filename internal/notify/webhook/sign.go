package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// signatures returns the value of the header webhook-signature, which has one signature for each
// secret. sentAt is the time of the header webhook-timestamp.
func signatures(secrets [][]byte, id string, sentAt time.Time, body []byte) string {
	all := make([]string, len(secrets))
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + strconv.FormatInt(sentAt.Unix(), 10) + "."))
		mac.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}
