# frozen_string_literal: true

require "logger"

module Heddle
  module Lab
    class Workload
      class Rails < Workload
        # A small application of Rails, with its usual middlewares and settings.
        class Application < ::Rails::Application
          BODY = "done"

          config.root = __dir__
          config.load_defaults "#{::Rails::VERSION::MAJOR}.#{::Rails::VERSION::MINOR}"
          config.eager_load = true
          config.secret_key_base = "0" * 64
          config.logger = ::Logger.new(File::NULL)
          config.middleware.insert_before 0, ::Rack::ContentLength # whoever asks for the pages knows no other end

          routes.append do
            %w[empty waiting computing].each { |page| get page, to: PagesController.action(page) }
          end

          def self.create_table
            ActiveRecord::Schema.verbose = false
            ActiveRecord::Schema.define { create_table(:pages, force: true) { |table| table.string :title } }
            2.times { |number| Page.create!(title: "page #{number}") }
            ActiveRecord::Base.connection_handler.clear_all_connections!
          end

          # A record.
          class Page < ActiveRecord::Base
            self.table_name = "pages"
          end

          # The pages.
          class PagesController < ActionController::Base
            def empty = render plain: BODY

            def waiting
              page = Page.find(1)
              3.times { raise "no page" unless Net::HTTP.get_response(settings.called).is_a?(Net::HTTPOK) }
              Page.where.not(id: page.id).pluck(:title)
              render plain: BODY
            end

            def computing
              finish = now + settings.computing
              nil while now < finish
              render plain: BODY
            end

            private

            def settings = ::Rails.configuration.x

            def now = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
          end
        end
        private_constant :Application
      end
    end
  end
end
