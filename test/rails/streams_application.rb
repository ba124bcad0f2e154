# frozen_string_literal: true

require_relative "application"

# The application with streams of events, on Puma with plugin :heddle: each stream is a task of one thread.
class StreamsApplication < RailsApplication::OnFibers
  FILES = {
    "config/puma.rb" => "plugin :heddle\nheddle fibers: 2000\nthreads 1, 1\n",
    "config/environment.rb" => RailsApplication.environment
      .sub('require "heddle"', %(require "heddle/rails"; require "heddle/rack/deadline"))
      .sub("config.eager_load", <<-RUBY.chomp),
        others = ->(env) { !env["PATH_INFO"].start_with?("/streams/") }
        config.middleware.use Heddle::Rack::Deadline, 0.5, except: others
        config.eager_load
      RUBY
    "config/routes.rb" => <<~RUBY,
      Rails.application.routes.draw do
        get "streams/:action", controller: "streams"
        get "topic/:action", controller: "topic"
        get ":action", controller: "items"
      end
    RUBY
    "app/models/topic.rb" => <<~RUBY,
      # Events for all that have subscribed, and how their streams have ended.
      class Topic
        @queues = {}
        @endings = Hash.new { |endings, name| endings[name] = [] }

        class << self
          attr_reader :queues, :endings

          def subscribe(id)
            yield queues[id] = Thread::Queue.new
          ensure
            queues.delete(id)
            endings[$!.class.name] << [id, Process.clock_gettime(Process::CLOCK_MONOTONIC)]
          end

          def publish(event) = queues.each_value { |queue| queue << event }
        end
      end
    RUBY
    "app/controllers/topic_controller.rb" => <<~RUBY,
      class TopicController < ActionController::Base
        def publish
          Topic.publish(params[:event])
          render json: nil
        end

        def state
          render json: {subscribers: Topic.queues.size, endings: Topic.endings, threads: Thread.list.size,
                        running: Puma.stats_hash.fetch(:running), busy: ApplicationRecord.connection_pool.stat[:busy]}
        end
      end
    RUBY
    "app/controllers/streams_controller.rb" => <<~'RUBY'
      class StreamsController < ActionController::Base
        include ActionController::Live
        before_action { Current.user = params[:id] }

        # Waits for events for ever.
        def events
          response.headers["Content-Type"] = "text/event-stream"
          sse = SSE.new(response.stream)
          Topic.subscribe(params[:id]) do |queue|
            sse.write("begun", event: Item.pluck(:name).first)
            ApplicationRecord.connection_pool.release_connection # Rails 7.1 leaves it to the action until its end
            loop { sse.write("#{queue.pop} for #{Current.user} in #{Fiber.scheduler.class}", id: params[:id]) }
          end
        ensure
          sse&.close
        end

        # Waits for a time, and cleans up.
        def sleeps
          Topic.subscribe(params[:id]) do
            response.stream.write("begun\n")
            sleep
          end
        ensure
          sleep(0.01)
          Topic.endings["cleaned up"] << params[:id]
          response.stream.close
        end

        # Longer than a request may take; the middleware has taken the shard for the time of the request.
        def state
          3.times do
            response.stream.writeln([Current.user, Item.pluck(:name), ApplicationRecord.current_shard].join(" "))
            sleep(0.25)
          end
          response.stream.close
        end

        def ignores
          response.stream.ignore_disconnect = true
          Topic.subscribe(params[:id]) do |queue|
            response.stream.write("begun\n")
            queue.pop
            response.stream.write("more\n")
          end
        ensure
          response.stream.close
        end

        def file
          send_stream(filename: "items.csv") do |stream|
            5.times { |i| stream.write("#{i}\n") && sleep(0.01) }
          end
        end

        def fails_before = raise(KeyError, "before")

        def fails_behind
          response.stream.write("begun\n")
          sleep(0.01)
          raise KeyError, "behind"
        end

        def late
          Topic.subscribe(params[:id]) { sleep }
        end

        def plain = render(plain: "plain")
      end
    RUBY
  }.freeze
  private_constant :FILES

  # A client's connection, on which it has asked for a stream.
  class Client
    def initialize(port, path)
      @socket = TCPSocket.new("127.0.0.1", port)
      @socket.write("GET #{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
    end

    # @return [String, nil] the next line that begins so
    def line(start)
      while (line = @socket.gets)
        return line.chomp if line.start_with?(start)
      end
    end

    def close = @socket.close
  end

  # @return [Client]
  def stream(path) = Client.new(port, path)

  def publish(event) = get("topic/publish", event: event)

  # @return [Hash] what the topic and Puma know now
  def state = get("topic/state")

  private

  def prepare
    super
    FILES.each { |path, text| File.write(File.join(dir, path), text) }
  end
end
