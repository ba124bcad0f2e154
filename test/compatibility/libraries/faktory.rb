# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "faktory_worker_ruby", kind: "Caches, queues and locks" do
  peer :scripted do |socket|
    socket.write("+HI {\"v\":2}\r\n")
    while (line = socket.gets)
      next socket.write("+OK\r\n") unless line.start_with?("FETCH")

      job = JSON.generate(jid: line[/heddle\d+/] * 40)
      socket.write("$#{job.bytesize}\r\n#{job}\r\n")
    end
  end
  load { require "faktory_worker_ruby" }
  connect { |peer| Faktory::Client.new(url: "tcp://#{peer}", timeout: 30) }
  ask { |faktory, number| faktory.fetch("heddle#{number}").fetch("jid")[/\d+/].to_i }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
