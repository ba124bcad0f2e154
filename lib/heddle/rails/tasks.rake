# frozen_string_literal: true

namespace :heddle do
  desc "Say whether database queries and HTTP calls of this application let other tasks run, and what to do"
  task doctor: :environment do
    require "heddle/rails/doctor"
    exit false unless Heddle::Rails::Doctor.new(Rails.application).run
  end
end
