package events

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// dataField describes a field of [Data], from its tags. Decoding, validation, the rules in SQL
// and the reference documentation are derived from these descriptions.
type dataField struct {
	name string
	path string // as errors show it, such as data.user_ids
	// limit is the maximum length in bytes of a text, or of each text in a list.
	limit int
	// isPath is true if the text is a category.
	isPath bool
	// allowed, if not empty, is another field of Data, a list of texts. In events whose type may
	// have that list, every text of the described field must be in the list. For example, each of
	// mentioned_user_ids must be in user_ids.
	allowed fields
	// enum has the values that a text may have, nil if every value is valid.
	enum []string
}

// fields is a set of fields of Data: bit n stands for dataFields[n].
type fields uint16

// dataFields are the fields of Data, in the order in which they are validated and encoded.
var dataFields = describeData()

func describeData() []dataField {
	var all []dataField
	set := map[string]fields{}
	for f := range reflect.TypeFor[Data]().Fields() {
		name := f.Tag.Get("json")
		if name == "-" {
			continue
		}
		field := dataField{name: name, path: "data." + name, allowed: set[f.Tag.Get("among")]}
		set[name] = 1 << len(all)
		field.limit, _ = strconv.Atoi(f.Tag.Get("maxLength")) // 0 for none
		field.isPath = f.Tag.Get("path") != ""
		if enum := f.Tag.Get("enum"); enum != "" {
			field.enum = strings.Split(enum, ",")
		}
		all = append(all, field)
	}
	return all
}

// values returns pointers to the fields of d, in the order of dataFields.
func (d *Data) values() [16]any {
	return [...]any{
		&d.ConversationID, &d.UserIDs, &d.Seq, &d.UpToSeq, &d.Seqs, &d.Revision, &d.FromSeq, &d.MentionedUserIDs, &d.MentionsAll,
		&d.Category, &d.MessageID, &d.SenderID, &d.Level, &d.Until, &d.Notification, &d.ByApp,
	}
}

// present returns the fields of d that are not zero.
func (d *Data) present() (present fields) {
	for i, value := range d.values() {
		given := false
		switch v := value.(type) {
		case *string:
			given = *v != ""
		case *Level:
			given = *v != ""
		case *[]string:
			given = len(*v) > 0
		case *[]int64:
			given = len(*v) > 0
		case *int64:
			given = *v != 0
		case *bool:
			given = *v
		case *time.Time:
			given = !v.IsZero()
		case *Notification:
			given = v.Title != "" || v.Body != "" || len(v.Data) > 0
		}
		if given {
			present |= 1 << i
		}
	}
	return present
}

// fieldsNamed returns the set of fields with these names.
func fieldsNamed(names []string) (set fields) {
	for _, name := range names {
		i := slices.IndexFunc(dataFields, func(f dataField) bool { return f.name == name })
		if i < 0 {
			panic(fmt.Sprintf("events: there is no field %q", name))
		}
		set |= 1 << i
	}
	return set
}

// has reports whether field i is in the set.
func (set fields) has(i int) bool { return set>>i&1 != 0 }
