// A peer for the MQTT bench: N clients of Eclipse Paho's Go library, each publishing at QoS 1 and waiting for
// the acknowledgement before the next. This is the loop of the common Go load generators.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

func main() {
	broker := flag.String("broker", "tcp://127.0.0.1:1883", "where to")
	clients := flag.Int("clients", 50, "how many")
	seconds := flag.Float64("seconds", 4, "how long")
	size := flag.Int("size", 64, "payload bytes")
	flag.Parse()
	payload := strings.Repeat("x", *size)
	var acked, failed atomic.Int64
	var ready, done sync.WaitGroup
	begin := make(chan time.Time)
	ready.Add(*clients)
	done.Add(*clients)
	for i := 0; i < *clients; i++ {
		go func(i int) {
			defer done.Done()
			options := mqtt.NewClientOptions().AddBroker(*broker).SetClientID(fmt.Sprintf("peer-%d", i))
			client := mqtt.NewClient(options)
			if token := client.Connect(); token.Wait() && token.Error() != nil {
				fmt.Fprintln(os.Stderr, token.Error())
				os.Exit(1)
			}
			ready.Done()
			until := (<-begin).Add(time.Duration(*seconds * float64(time.Second)))
			topic := fmt.Sprintf("nd/%d", i)
			for time.Now().Before(until) {
				token := client.Publish(topic, 1, false, payload)
				token.Wait()
				if token.Error() == nil {
					acked.Add(1)
				} else {
					failed.Add(1)
				}
			}
			client.Disconnect(100)
		}(i)
	}
	ready.Wait()
	now := time.Now()
	for i := 0; i < *clients; i++ {
		begin <- now
	}
	done.Wait()
	fmt.Printf("{\"acked\": %d, \"failed\": %d}\n", acked.Load(), failed.Load())
}
