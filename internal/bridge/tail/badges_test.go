package tail

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/badged/badged/pubsub"
)

// A message about a user has no more categories than a badge shows: brokers refuse what
// is too large.
func TestMessagesOfManyCategories(t *testing.T) {
	b := pubsub.Badge{UserID: "ada", Numbers: pubsub.Numbers{Total: 2 * pubsub.MaxCategories}, Categories: map[string]pubsub.Numbers{}}
	for i := range 2 * pubsub.MaxCategories {
		b.Categories[fmt.Sprintf("project-%04d", i)] = pubsub.Numbers{Total: 1}
	}
	r, err := new(worker).badge(&b)
	var got struct{ Data pubsub.Badge }
	if err == nil {
		err = json.Unmarshal(r.payload, &got)
	}
	if err != nil || got.Data.Total != b.Total || len(got.Data.Categories) != pubsub.MaxCategories || !got.Data.MoreCategories {
		t.Errorf("the message has total %d, %d categories, more: %v; %v", got.Data.Total, len(got.Data.Categories), got.Data.MoreCategories, err)
	}
}
