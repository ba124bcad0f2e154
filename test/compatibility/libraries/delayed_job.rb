# frozen_string_literal: true

require_relative "../records"

Compatibility.library "delayed_job_active_record", kind: "Caches, queues and locks" do
  peer :mariadb
  load do
    Compatibility::Records.load
    require "delayed_job_active_record"
  end
  connect do |peer|
    Compatibility::Records.connect(peer, "trilogy").tap do |pool|
      # Not again: it would wait for a transaction that was interrupted.
      pool.with_connection do |connection|
        next if connection.table_exists?(:delayed_jobs)

        connection.create_table(:delayed_jobs) do |table|
          table.integer :priority, :attempts, default: 0
          table.text :handler, :last_error
          table.timestamp :run_at, :locked_at, :failed_at, :created_at, :updated_at
          table.string :locked_by, :queue
        end
      end
    end
  end
  ask { |_, number| Delayed::Job.enqueue(Struct.new(:perform).new, queue: "heddle#{number}").reload.queue[/\d+/].to_i }
end
