package describe

import "encoding/json"

// Messaging describes the messages that are sent over connections or stored in logs. API describes
// requests.
type Messaging struct {
	Title, Version string
	// Doc is an introduction in Markdown.
	Doc      string
	Servers  []Server
	Access   []Access
	Channels []Channel
}

// Server is a server on which channels are available.
type Server struct {
	Name, Host, Protocol, Doc string
	// Access is the name of the required security scheme, "" for none.
	Access string
}

// Channel is a connection or a log.
type Channel struct {
	Name, Address, Doc string
	// Server names the channel's server.
	Server string
	// Sends has the messages that badged sends. Receives has the messages that badged receives.
	Sends, Receives []Message
	// Parameters are the parameters of the address.
	Parameters []Param
	// Codes are the close codes of a connection.
	Codes []Code
}

// Message is one kind of message on a channel.
type Message struct {
	Name, Doc, ContentType string
	// Model is the value for Schemas.Of.
	Model any
	// Example is a message, in JSON.
	Example string
}

// Code is a close code and its meaning.
type Code struct {
	Code int `json:"code"`
	// Means is the meaning of the code. Then is what the receiver should do.
	Name  string `json:"name"`
	Means string `json:"means"`
	Then  string `json:"then"`
}

// AsyncAPI returns the description of messaging in AsyncAPI 3.0, as JSON.
func AsyncAPI(m Messaging) ([]byte, error) {
	schemas := NewSchemas(componentSchemas)
	var servers, channels, operations, messages Object
	for _, s := range m.Servers {
		o := Object{{"host", s.Host}, {"protocol", s.Protocol}, {"description", s.Doc}}
		if s.Access != "" {
			o = append(o, Member{"security", []Object{ref("#/components/securitySchemes/", s.Access)}})
		}
		servers = append(servers, Member{s.Name, o})
	}
	known := map[string]bool{}
	for _, c := range m.Channels {
		var own Object
		there := map[string]bool{}
		for _, way := range []struct {
			action   string
			messages []Message
		}{{"send", c.Sends}, {"receive", c.Receives}} {
			if len(way.messages) == 0 {
				continue
			}
			var refs []Object
			for _, message := range way.messages {
				if !known[message.Name] {
					known[message.Name] = true
					messages = append(messages, Member{message.Name, messageOf(schemas, message)})
				}
				if !there[message.Name] {
					there[message.Name] = true
					own = append(own, Member{message.Name, ref("#/components/messages/", message.Name)})
				}
				refs = append(refs, ref("#/channels/"+c.Name+"/messages/", message.Name))
			}
			operations = append(operations, Member{way.action + TypeName(c.Name), Object{
				{"action", way.action}, {"channel", ref("#/channels/", c.Name)}, {"messages", refs},
			}})
		}
		channels = append(channels, Member{c.Name, channelOf(c, own)})
	}
	return json.MarshalIndent(Object{
		{"asyncapi", "3.0.0"},
		{"info", Object{
			{"title", m.Title},
			{"version", m.Version},
			{"description", m.Doc},
			{"license", Object{{"name", "Apache-2.0"}}},
		}},
		{"defaultContentType", "application/json"},
		{"servers", servers},
		{"channels", channels},
		{"operations", operations},
		{"components", Object{
			{"messages", messages},
			{"schemas", schemas.Named()},
			{"securitySchemes", accessOf(m.Access)},
		}},
	}, "", "  ")
}

func channelOf(c Channel, messages Object) Object {
	o := Object{
		{"address", c.Address},
		{"description", c.Doc},
		{"servers", []Object{ref("#/servers/", c.Server)}},
		{"messages", messages},
	}
	if len(c.Parameters) > 0 {
		var params Object
		for _, p := range c.Parameters {
			params = append(params, Member{p.Name, Object{{"description", p.Doc}, {"examples", []string{p.Example}}}})
		}
		o = append(o, Member{"parameters", params})
	}
	if len(c.Codes) > 0 {
		o = append(o, Member{"x-close-codes", c.Codes})
	}
	return o
}

func messageOf(schemas *Schemas, m Message) Object {
	o := Object{{"name", m.Name}, {"summary", m.Doc}, {"contentType", m.ContentType}, {"payload", schemas.Of(m.Model)}}
	return append(o, Member{"examples", []Object{{{"payload", json.RawMessage(m.Example)}}}})
}

func ref(prefix, name string) Object { return Object{{"$ref", prefix + name}} }
