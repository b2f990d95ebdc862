// NATS JetStream as a peer of the ledger's bench.
//
//	nats-peer serve --config FILE            one server, as its released binary would run it
//	nats-peer load --urls URLS --in-flight N --warm N --count N --size BYTES
//
// The load keeps N publishes in flight to a stream of three replicas on files and prints one JSON line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	subject      = "adds"
	electionWait = 30 * time.Second
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: nats-peer serve|load ..."))
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2:])
	case "load":
		load(os.Args[2:])
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func serve(args []string) {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	config := flags.String("config", "", "configuration file of the server")
	_ = flags.Parse(args)
	options, err := server.ProcessConfigFile(*config)
	if err != nil {
		fail(err)
	}
	node, err := server.NewServer(options)
	if err != nil {
		fail(err)
	}
	node.ConfigureLogger()
	if err := server.Run(node); err != nil {
		fail(err)
	}
	node.WaitForShutdown()
}

type published struct {
	ack  jetstream.PubAckFuture
	sent time.Time
}

func load(args []string) {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	urls := flags.String("urls", "", "servers, separated by commas")
	inFlight := flags.Int("in-flight", 100, "publishes without an answer")
	warm := flags.Int("warm", 1_000, "publishes before the clock starts")
	count := flags.Int("count", 10_000, "publishes that are timed")
	size := flags.Int("size", 1024, "bytes a message")
	_ = flags.Parse(args)

	connection := connect(*urls)
	defer connection.Close()
	stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(*inFlight))
	if err != nil {
		fail(err)
	}
	createStream(stream)
	payload := make([]byte, *size)
	rand.New(rand.NewSource(1)).Read(payload)
	publish(stream, payload, *inFlight, *warm)
	began := time.Now()
	latencies := publish(stream, payload, *inFlight, *count)
	seconds := time.Since(began).Seconds()
	slices.Sort(latencies)
	_ = json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"per_s":  float64(*count) / seconds,
		"p50_ms": latencies[len(latencies)/2],
	})
	_ = stream.DeleteStream(context.Background(), subject)
}

// connect waits until a server listens.
func connect(urls string) *nats.Conn {
	deadline := time.Now().Add(electionWait)
	for {
		connection, err := nats.Connect(urls)
		if err == nil {
			return connection
		}
		if time.Now().After(deadline) {
			fail(fmt.Errorf("no server of %s answers after %s: %w", urls, electionWait, err))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// createStream waits until the servers have elected whoever may create one.
func createStream(stream jetstream.JetStream) {
	deadline := time.Now().Add(electionWait)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := stream.CreateStream(ctx, jetstream.StreamConfig{
			Name: subject, Subjects: []string{subject}, Storage: jetstream.FileStorage, Replicas: 3,
		})
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			fail(fmt.Errorf("no stream of three replicas after %s: %w", electionWait, err))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// publish sends count messages, keeps at most inFlight of them unanswered, and returns their latencies in ms.
func publish(stream jetstream.JetStream, payload []byte, inFlight, count int) []float64 {
	latencies := make([]float64, 0, count)
	sent := make(chan published, inFlight)
	room := make(chan struct{}, inFlight)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for one := range sent {
			select {
			case <-one.ack.Ok():
				latencies = append(latencies, float64(time.Since(one.sent).Microseconds())/1000)
			case err := <-one.ack.Err():
				fail(fmt.Errorf("a publish failed: %w", err))
			}
			<-room
		}
	}()
	for range count {
		room <- struct{}{}
		now := time.Now()
		ack, err := stream.PublishAsync(subject, payload)
		if err != nil {
			fail(err)
		}
		sent <- published{ack, now}
	}
	close(sent)
	<-done
	return latencies
}
