# frozen_string_literal: true

# What the command `sidekiq` runs for libraries/sidekiq_runner.rb. A job asks the server ASK, and puts the answer where
# whoever enqueued the job waits for it.

require "heddle/sidekiq"
require "socket"

Sidekiq.configure_server do |config|
  config.redis = {url: ENV.fetch("REDIS_URL")}
  config.heddle(fibers: 20)
end

class AskingJob
  include Sidekiq::Job

  def perform(number)
    answer = TCPSocket.open(*ENV.fetch("ASK").split(":")) do |socket|
      socket.puts("heddle#{number}")
      socket.gets
    end
    Sidekiq.redis { |redis| redis.call("LPUSH", "answer#{number}", answer) }
  end
end
