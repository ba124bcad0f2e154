# frozen_string_literal: true

Compatibility.library "activejob (:heddle)", gem: "activejob", kind: "Job runners" do
  peer(:scripted) { |socket| socket.puts(socket.gets) }
  load do
    require "active_job"
    require "heddle/active_job"
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
    ActiveJob::Base.logger = nil
    ActiveJob::Base.queue_adapter = :heddle
    @job = Object.const_set(:AskingJob, Class.new(ActiveJob::Base) do
      @answers = Hash.new { |queues, number| queues[number] = Thread::Queue.new }
      singleton_class.attr_reader :answers

      def perform(number, host, port)
        TCPSocket.open(host, port) do |socket|
          socket.puts("heddle#{number}")
          self.class.answers[number] << socket.gets
        end
      end
    end)
  end
  connect { |peer| peer }
  ask do |peer, number|
    @job.perform_later(number, peer.host, peer.port)
    @job.answers[number].pop[/\d+/].to_i
  end
  only :at_once, "Ten jobs at once, each of which waits for a server: [jobs](../guides/jobs.md)."
end
